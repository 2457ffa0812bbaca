// Feeds mutated descriptions to the readers of op.json, manifest.json, bundle.json and host
// programs.
//
// Usage: fuzz <seconds> <seed>. One seed gives one sequence of inputs. Each input is read and,
// where it is accepted, used as a call would: the only way out that is no fault is a tileops error.
// An input that brings a sanitizer down is written to fuzz-failure.json.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/bundle.h"
#include "core/host_program.h"
#include "core/launch.h"
#include "core/spec.h"

extern "C" void __sanitizer_set_death_callback(void (*callback)());

using namespace tileops;

namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t next() {  // xorshift64*
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1Dull;
  }
  std::size_t below(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::size_t>(next() >> 16) % bound;
  }

 private:
  uint64_t state_;
};

std::string current;  // what is being read, for the death callback

void keep_current() {
  std::FILE* file = std::fopen("fuzz-failure.json", "wb");
  if (file == nullptr) return;
  std::fwrite(current.data(), 1, current.size(), file);
  std::fclose(file);
  std::fprintf(stderr, "the input is in fuzz-failure.json\n");
}

const char* const kWords[] = {"tensor",
                              "int",
                              "int?",
                              "float",
                              "float?",
                              "bool",
                              "str",
                              "int[]",
                              "device?",
                              "scalar",
                              "static",
                              "const",
                              "dynamic",
                              "size:0",
                              "size:1023",
                              "scalar:0",
                              "host:sm_count",
                              "alloc:0",
                              "alloc:31",
                              "add",
                              "mul",
                              "floordiv",
                              "shl",
                              "select",
                              "neg",
                              "cpu",
                              "cuda",
                              "kernel_lib.so",
                              "launch0.cubin",
                              "i32",
                              "u64",
                              "f16",
                              "bf16",
                              "f32",
                              "ptr",
                              "slot",
                              "workspace",
                              "tensormap",
                              "global_scratch",
                              "null",
                              "",
                              "inf",
                              "nan",
                              "\\u0000",
                              "\\ud83d\\ude00"};
const char* const kNumbers[] = {"0",
                                "1",
                                "-1",
                                "2",
                                "31",
                                "32",
                                "63",
                                "64",
                                "127",
                                "255",
                                "256",
                                "1023",
                                "4095",
                                "4096",
                                "65535",
                                "65536",
                                "2147483647",
                                "2147483648",
                                "-2147483648",
                                "9223372036854775807",
                                "-9223372036854775808",
                                "1099511627776",
                                "1e300",
                                "0.5",
                                "null",
                                "true",
                                "[]",
                                "{}",
                                "\"x\""};
const char* const kPieces[] = {"{",
                               "}",
                               "[",
                               "]",
                               ",",
                               ":",
                               "\"",
                               "\\",
                               "null",
                               "[0]",
                               "{\"bind\": 0}",
                               "{\"eq\": 0}",
                               "{\"solve\": [0, 1, 0]}",
                               ", 0",
                               ", \"x\": 0",
                               "[\"const\", 1]",
                               ", [\"add\", 0, 0]"};

template <std::size_t kCount>
const char* pick(Random& random, const char* const (&list)[kCount]) {
  return list[random.below(kCount)];
}

// A span of the text that starts at a random place and holds characters that `keep` accepts.
template <class Keep>
std::pair<std::size_t, std::size_t> span(Random& random, const std::string& text,
                                         const Keep& keep) {
  std::size_t begin = random.below(text.size());
  while (begin < text.size() && !keep(text[begin])) ++begin;
  std::size_t end = begin;
  while (end < text.size() && keep(text[end])) ++end;
  return {begin, end - begin};
}

void mutate_once(Random& random, std::string& text, const std::vector<std::string>& pool) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || c == '-'; };
  const std::size_t at = random.below(text.size() + 1);
  switch (random.below(9)) {
    case 0: {
      const auto found = span(random, text, is_digit);
      text.replace(found.first, found.second, pick(random, kNumbers));
      return;
    }
    case 1: {
      const auto found = span(random, text, [](char c) { return c != '"'; });
      text.replace(found.first, found.second, pick(random, kWords));
      return;
    }
    case 2:
      text.insert(at, pick(random, kPieces));
      return;
    case 3:
      if (!text.empty())
        text[random.below(text.size())] ^= static_cast<char>(1u << random.below(8));
      return;
    case 4:
      text.erase(at, 1 + random.below(16));
      return;
    case 5:
      text.insert(at, text.substr(random.below(text.size() + 1), 1 + random.below(64)));
      return;
    case 6: {
      const std::string& other = pool[random.below(pool.size())];
      text.insert(at, other.substr(random.below(other.size() + 1), 1 + random.below(200)));
      return;
    }
    case 7:
      text.resize(at);
      return;
    default: {  // one bracket's content again, so that lists grow
      const std::size_t open = text.find('[', at == text.size() ? 0 : at);
      const std::size_t close = open == std::string::npos ? open : text.find(']', open);
      if (close == std::string::npos || close - open > 400) return;
      text.insert(close, ", " + text.substr(open + 1, close - open - 1));
    }
  }
}

std::vector<int64_t> evaluated(const HostProgram& host, Random& random) {
  std::vector<int64_t> slots(host.slot_count() + 1);
  for (std::size_t i = 0; i < host.inputs().size(); ++i)
    slots[i] = static_cast<int64_t>(random.next()) >> random.below(64);
  host.evaluate(slots.data(), "f");
  return slots;
}

void use_host(const HostProgram& host, Random& random) {
  if (host.slot_count() > 0) host.describe(random.below(host.slot_count()), {"N"}, {"s"});
  evaluated(host, random);
}

// A call up to the launch: workspaces and parameters from arbitrary sizes.
void use_entry(const EntrySpec& entry, const VariantSpec& variant, Random& random) {
  const std::vector<int64_t> slots = evaluated(entry.host, random);
  std::vector<void*> tensors(entry.tensors.size() + 1), workspaces(entry.workspaces.size() + 1);
  std::vector<ScalarValue> scalars(variant.scalars.size() + 1);
  for (ScalarValue& scalar : scalars) scalar.i = static_cast<int64_t>(random.next());
  CallFrame frame;
  frame.op = "f";
  frame.slots = slots.data();
  frame.tensors = tensors.data();
  frame.workspaces = workspaces.data();
  frame.scalars = scalars.data();
  std::vector<int64_t> offsets(entry.workspaces.size() + 1);
  int64_t scratch = 0;
  plan_workspaces(entry, frame, offsets.data(), &scratch);
  static TileopsValue packed[kMaxParams];
  static CudaParams cuda;
  for (const LaunchSpec& launch : entry.launches) {
    pack_cpu(launch, frame, packed);
    if (launch.maps.empty()) pack_cuda(launch, frame, cuda);
  }
}

void read_op(const std::string& text, Random& random) {
  static const EntrySpec::ImageMap images = {
      {"kernel_lib.so", ImageSource{"kernel_lib.so", "x", ""}},
      {"launch0.cubin", ImageSource{"launch0.cubin", "x", ""}}};
  const BundledOp op = BundledOp::from_text(text);
  const OpSpec spec = OpSpec::from_json(op.op());
  for (const BundledVariant& bundled : op.variants) {
    const VariantSpec variant = VariantSpec::from_json(*bundled.description, spec);
    std::vector<uint64_t> key;
    for (const StaticValue& value : variant.statics) append_key_words(key, value);
    use_host(variant.host, random);
    for (const BundledEntry& entry : bundled.entries)
      use_entry(EntrySpec::from_json(*entry.description, spec, variant, images, 0), variant,
                random);
  }
}

void read(std::size_t kind, const std::string& text, Random& random) {
  switch (kind) {
    case 0:
    case 1:
      return read_op(text, random);
    case 2:
      BundleIndex::from_json(json::parse(text));
      return;
    case 3:
      ProgramManifest::from_json(json::parse(text));
      return;
    default: {
      const json::Value value = json::parse(text);
      use_host(HostProgram::from_json(&value), random);
    }
  }
}

std::string load(const std::string& name) {
  std::ifstream file(std::string(TILEOPS_CORPUS) + "/" + name, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.empty()) std::exit(std::fprintf(stderr, "no corpus file %s\n", name.c_str()));
  return text;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return std::fprintf(stderr, "usage: fuzz <seconds> <seed>\n"), 2;
  const double seconds = std::atof(arguments[1]);
  const uint64_t seed = std::strtoull(arguments[2], nullptr, 10);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  __sanitizer_set_death_callback(keep_current);
  const std::vector<std::string> names = {"op_cpu.json", "op_cuda.json", "bundle.json",
                                          "manifest.json", "host.json"};
  std::vector<std::vector<std::string>> pools;  // for each kind, inputs that were accepted
  Random random(seed);
  for (std::size_t kind = 0; kind < names.size(); ++kind) {
    pools.push_back({load(names[kind])});
    try {  // a corpus that is refused would test nothing; its arithmetic may overflow
      read(kind, pools.back()[0], random);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kArgument)
        return std::fprintf(stderr, "%s\n", error.what()), 1;
    }
  }
  constexpr std::size_t kPool = 512, kLongest = 1 << 16;
  uint64_t inputs = 0, accepted = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    const std::size_t kind = random.below(names.size());
    std::vector<std::string>& pool = pools[kind];
    current = pool[random.below(pool.size())];
    for (std::size_t rounds = 1 + random.below(4); rounds > 0; --rounds)
      mutate_once(random, current, pool);
    ++inputs;
    bool good = true;
    try {
      read(kind, current, random);
    } catch (const Error& error) {
      good = error.kind() == ErrorKind::kArgument;  // well-formed; the sizes of the call were not
    } catch (const std::exception& error) {
      std::fprintf(stderr, "input %llu: %s\n", static_cast<unsigned long long>(inputs),
                   error.what());
      keep_current();
      return 1;
    }
    if (!good) continue;
    ++accepted;
    if (current.size() > kLongest) continue;
    if (pool.size() < kPool)
      pool.push_back(current);
    else
      pool[1 + random.below(kPool - 1)] = current;
  }
  std::printf("%llu inputs, %llu accepted\n", static_cast<unsigned long long>(inputs),
              static_cast<unsigned long long>(accepted));
  return accepted > 0 ? 0 : 1;
}
