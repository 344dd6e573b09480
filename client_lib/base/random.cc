#include "client_lib/base/random.h"

#include <random>
#include <utility>

namespace pawl {
namespace {

thread_local const std::function<uint64_t()>* scripted = nullptr;

}  // namespace

uint64_t RandomNumber() {
  if (scripted != nullptr) return (*scripted)();
  // A generator in memory would give the same numbers to all children of a fork.
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

ScopedRandomNumbers::ScopedRandomNumbers(std::function<uint64_t()> source)
    : source_(std::move(source)), former_(std::exchange(scripted, &source_)) {}

ScopedRandomNumbers::~ScopedRandomNumbers() { scripted = former_; }

}  // namespace pawl
