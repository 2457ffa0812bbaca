// The dispatch table: from key words to an immutable value; readers never lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "core/forks.h"

namespace tileops {

inline uint64_t hash_words(const uint64_t* words, std::size_t count) {
  // Multiply and fold: the table compares whole keys, so the hash only has to spread.
  uint64_t hash = 0x9E3779B97F4A7C15ull ^ count;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned __int128 product =
        static_cast<unsigned __int128>(hash ^ words[i]) * 0xD6E8FEB86659FD93ull;
    hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  return hash;
}

// Open addressing over pointers to nodes. Writers lock, fill a node and publish its pointer; when
// the table grows a new array is published and the old one kept, because a reader may still be in
// it. Nothing is freed before the table.
template <class T>
class DispatchTable {
 public:
  DispatchTable() { grow(16); }
  DispatchTable(const DispatchTable&) = delete;
  DispatchTable& operator=(const DispatchTable&) = delete;

  // The value of the key, or null.
  T* find(const uint64_t* words, std::size_t count) const {
    const uint64_t hash = hash_words(words, count);
    const Slots* slots = slots_.load(std::memory_order_acquire);
    for (uint64_t i = hash;; ++i) {
      const Node* node = slots->nodes[i & slots->mask].load(std::memory_order_acquire);
      if (node == nullptr) return nullptr;
      if (node->hash == hash && node->key.size() == count &&
          std::memcmp(node->key.data(), words, count * sizeof(uint64_t)) == 0) {
        return node->value.get();
      }
    }
  }

  // Adds the value unless the key is there already; returns the one that the table holds.
  T* insert(const std::vector<uint64_t>& key, std::unique_ptr<T> value) {
    std::lock_guard<Mutex> lock(mutex_);
    if (T* present = find(key.data(), key.size())) return present;
    const Slots* slots = slots_.load(std::memory_order_relaxed);
    if ((nodes_.size() + 1) * 2 > slots->mask + 1) grow((slots->mask + 1) * 2);
    nodes_.push_back(std::make_unique<Node>());
    Node* node = nodes_.back().get();
    node->hash = hash_words(key.data(), key.size());
    node->key = key;
    node->value = std::move(value);
    place(*slots_.load(std::memory_order_relaxed), node);
    return node->value.get();
  }

  // All values; they live as long as the table.
  std::vector<T*> all() const {
    std::lock_guard<Mutex> lock(mutex_);
    std::vector<T*> found;
    for (const auto& node : nodes_) found.push_back(node->value.get());
    return found;
  }

  std::size_t size() const {
    std::lock_guard<Mutex> lock(mutex_);
    return nodes_.size();
  }

 private:
  struct Node {
    uint64_t hash = 0;
    std::vector<uint64_t> key;
    std::unique_ptr<T> value;
  };
  struct Slots {
    explicit Slots(uint64_t size) : mask(size - 1), nodes(new std::atomic<Node*>[size]()) {}
    uint64_t mask;
    std::unique_ptr<std::atomic<Node*>[]> nodes;
  };

  static void place(const Slots& slots, Node* node) {
    uint64_t i = node->hash;
    while (slots.nodes[i & slots.mask].load(std::memory_order_relaxed) != nullptr) ++i;
    slots.nodes[i & slots.mask].store(node, std::memory_order_release);
  }

  void grow(uint64_t size) {
    arrays_.push_back(std::make_unique<Slots>(size));
    for (const auto& node : nodes_) place(*arrays_.back(), node.get());
    slots_.store(arrays_.back().get(), std::memory_order_release);
  }

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Slots>> arrays_;
  std::atomic<const Slots*> slots_{nullptr};
};

}  // namespace tileops
