// Owns the one table of host hooks.
#include "core/hooks.h"

namespace tileops {

Hooks& hooks() {
  static Hooks table;
  return table;
}

}  // namespace tileops
