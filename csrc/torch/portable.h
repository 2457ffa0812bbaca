// Code for one GPU architecture that other GPUs can run: what an op of a bundle has for devices
// that its bundles do not name.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/forks.h"
#include "core/json.h"
#include "core/spec.h"

namespace tileops {

class Op;
struct Binding;

// One entry of a bundle for an architecture without features of its own ("sm_80", not "sm_90a").
struct PortableEntry {
  int capability = 0;                              // that it was compiled for
  std::string origin;                              // the bundle, for messages
  std::string place;                               // in the bundle, to tell entries apart
  std::shared_ptr<const json::Value> description;  // what EntrySpec reads
  EntrySpec::ImageMap cubins;
  EntrySpec::ImageMap
      ptx;  // the same names, with the PTX that each was assembled from; may be empty

  uint32_t shared_bytes() const;  // the most that a launch needs
};

// Of one variant. Copies of the entries are cheap: the descriptions are shared.
struct PortableEntries {
  Mutex mutex;
  std::vector<PortableEntry> entries;
  std::set<int> served;  // capabilities that were given entries since the last one came
  std::string refusals;  // of the driver, for messages

  void add(PortableEntry entry);  // once, however often its bundle is loaded
};

// The architecture's number if `target` ("cuda:sm_80") names one whose code serves others, else 0.
int portable_capability(const std::string& target);

// True if a cubin for `capability` runs on a device of another, newer one: in one generation, and
// the chips of Tegra, which are apart, neither give nor take.
bool cubin_serves(int capability, int device_capability);

// Gives the variant of a call entries for the call's device from code for other architectures: the
// nearest cubin that fits, else the newest PTX that the driver takes. Entries that are there stay.
// False if that was done before. The interpreter's lock may be held; it is let go meanwhile.
bool serve_portable(Op& op, const Binding& call);

// What the driver refused to compile for the call, for messages; empty if nothing.
std::string refused_ptx(const Op& op, const Binding& call);

}  // namespace tileops
