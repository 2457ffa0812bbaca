// The reader of choices.
#include "core/choice.h"

#include "core/error.h"

namespace tileops {

ChoiceSpec ChoiceSpec::from_json(const json::Value& value) {
  value.check_members({"host", "keys", "words"}, "choice");
  ChoiceSpec choice;
  choice.host = HostProgram::from_json(value.find("host"));
  for (const json::Value& item : value.at("keys").as_array("choice.keys")) {
    item.check_members({"slot", "mask"}, "choice.keys");
    const json::Value* mask = item.find("mask");
    ChoiceKey key{choice.host.checked_slot(item.at("slot"), "choice.keys"), 0, mask == nullptr};
    if (mask != nullptr) key.mask = static_cast<uint64_t>(mask->as_int_in(0, 7, "choice.mask"));
    choice.keys.push_back(key);
  }
  for (const json::Value& item : value.at("words").as_array("choice.words"))
    choice.words.push_back(static_cast<uint64_t>(item.as_int("choice.words")));
  if (choice.keys.empty() || choice.words.size() != choice.keys.size())
    raise(ErrorKind::kInternal, "a choice has as many words as keys, at least one");
  return choice;
}

bool ChoiceSpec::same_keys(const ChoiceSpec& other) const {
  if (keys.size() != other.keys.size() || !host.is_same(other.host)) return false;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const ChoiceKey &one = keys[i], &two = other.keys[i];
    if (one.slot != two.slot || one.mask != two.mask || one.exact != two.exact) return false;
  }
  return true;
}

}  // namespace tileops
