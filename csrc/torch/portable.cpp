// The choice of code for a GPU that a bundle does not name.
#include "torch/portable.h"

#include <algorithm>
#include <map>

#include "core/driver.h"
#include "core/files.h"
#include "core/hooks.h"
#include "core/ptx.h"
#include "torch/bind.h"
#include "torch/op.h"

namespace tileops {
namespace {

// Tegra's chips of the generation of sm_80; sm_72 is older than what code is generated for.
constexpr int kTegra = 87;

std::string arch(int capability) {
  return "sm_" + std::to_string(capability);
}

// Why the driver does not take the entry's PTX; empty if it does.
std::string refusal_of(const PortableEntry& entry, int device_index) {
  for (const auto& image : entry.ptx) {
    const ImageSource& source = image.second;
    const std::string refusal =
        refusal_of_ptx(read_verified(source.path, source.expected), device_index);
    if (!refusal.empty()) return refusal;
  }
  return "";
}

struct Choice {
  const PortableEntry* entry;
  bool is_ptx;
};

// Best first: cubins, then PTX, each from the newest architecture down.
std::vector<Choice> choices_for(const std::vector<PortableEntry>& entries, const Binding& call,
                                std::string& refusals) {
  const DeviceInfo& device = device_info(call.device_index);
  const int64_t limit = device.facts[static_cast<int>(HostFact::kMaxSharedPerBlock)];
  std::vector<Choice> found;
  std::map<std::string, std::string> asked;  // by bundle and architecture
  for (const PortableEntry& entry : entries) {
    if (entry.shared_bytes() > limit) continue;
    if (cubin_serves(entry.capability, call.capability)) found.push_back({&entry, false});
    if (entry.ptx.empty() || entry.capability > call.capability) continue;
    const auto placed = asked.emplace(entry.origin + arch(entry.capability), "");
    if (placed.second) {
      std::string& refusal = placed.first->second = refusal_of(entry, call.device_index);
      if (!refusal.empty()) refusals += (refusals.empty() ? "" : "; ") + refusal;
    }
    if (placed.first->second.empty()) found.push_back({&entry, true});
  }
  std::stable_sort(found.begin(), found.end(), [](const Choice& a, const Choice& b) {
    return a.is_ptx != b.is_ptx ? b.is_ptx : a.entry->capability > b.entry->capability;
  });
  return found;
}

void note(const Op& op, const Binding& call, const Choice& choice) {
  const std::string form =
      choice.is_ptx ? "PTX of " + arch(choice.entry->capability) + ", which the driver compiles"
                    : "code for " + arch(choice.entry->capability);
  write_note("cache", op.spec.title() + " on cuda:" + std::to_string(call.device_index) + " (" +
                          arch(call.capability) + "): " + form + ", from " + choice.entry->origin);
}

}  // namespace

uint32_t PortableEntry::shared_bytes() const {
  int64_t most = 0;
  for (const json::Value& launch : description->at("launches").as_array("launches"))
    most = std::max(most, launch.at("shared_bytes").as_int("launches.shared_bytes"));
  return static_cast<uint32_t>(most);
}

void PortableEntries::add(PortableEntry entry) {
  std::lock_guard<Mutex> lock(mutex);
  for (const PortableEntry& known : entries) {
    if (known.origin == entry.origin && known.place == entry.place) return;
  }
  entries.push_back(std::move(entry));
  served.clear();
}

int portable_capability(const std::string& target) {
  constexpr const char* kPrefix = "cuda:sm_";
  if (target.rfind(kPrefix, 0) != 0) return 0;
  const std::string digits = target.substr(std::string(kPrefix).size());
  const bool is_plain = digits.size() >= 2 && digits.size() <= 3 &&
                        digits.find_first_not_of("0123456789") == std::string::npos;
  return is_plain ? std::stoi(digits) : 0;
}

bool cubin_serves(int capability, int device_capability) {
  return capability / 10 == device_capability / 10 && capability < device_capability &&
         capability != kTegra && device_capability != kTegra;
}

bool serve_portable(Op& op, const Binding& call) {
  const GilReleaseScope no_gil;  // around the locks: see core/forks.h
  PortableEntries& portable = op.variant(call.variant->number).portable;
  std::vector<PortableEntry> entries;
  {
    std::lock_guard<Mutex> lock(portable.mutex);
    if (portable.served.count(call.capability) != 0) return false;
    entries = portable.entries;
  }
  std::string refusals;
  const std::vector<Choice> choices = choices_for(entries, call, refusals);
  for (const Choice& choice : choices) {
    const PortableEntry& entry = *choice.entry;
    op.add_entry(call.variant->number, *entry.description, choice.is_ptx ? entry.ptx : entry.cubins,
                 call.capability);
  }
  if (!choices.empty()) note(op, call, choices.front());
  std::lock_guard<Mutex> lock(portable.mutex);
  portable.served.insert(call.capability);
  portable.refusals = refusals;
  return !choices.empty();
}

std::string refused_ptx(const Op& op, const Binding& call) {
  PortableEntries& portable = op.variant(call.variant->number).portable;
  std::lock_guard<Mutex> lock(portable.mutex);
  return portable.refusals;
}

}  // namespace tileops
