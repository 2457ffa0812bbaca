// The entries of one key that differ in facts of run-time integers.
#include "core/launch.h"
#include "torch/bind.h"

namespace tileops {

const Entry* Choices::find(const Binding& call, bool general) const {
  SmallBuffer<int64_t, 64> slots(spec.host.slot_count());
  evaluate_host(spec.host, call, slots.data());
  SmallBuffer<uint64_t, 32> words(spec.keys.size());
  spec.put_words(slots.data(), general, words.data());
  return entries.find(words.data(), spec.keys.size());
}

void Variant::add(const std::vector<uint64_t>& key, std::unique_ptr<Entry> entry) {
  if (entry->spec.choice == nullptr) {
    entries.insert(key, std::move(entry));
    return;
  }
  const ChoiceSpec& given = *entry->spec.choice;
  auto made = std::make_unique<Entry>();
  made->choices = std::make_unique<Choices>();
  made->choices->spec = given;
  Choices* choices = entries.insert(key, std::move(made))->choices.get();
  if (choices == nullptr || !choices->spec.same_keys(given))
    raise(ErrorKind::kInternal, "two entries of one key choose by different numbers");
  choices->entries.insert(given.words, std::move(entry));
}

void Choices::load(int device_index) const {
  for (const Entry* entry : entries.all()) tileops::load(entry->spec, device_index);
}

}  // namespace tileops
