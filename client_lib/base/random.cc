#include "client_lib/base/random.h"

#include <random>
#include <utility>

namespace pawl {
namespace {

thread_local const std::function<uint64_t()>* scripted = nullptr;

}  // namespace

uint64_t RandomNumber() {
  if (scripted != nullptr) return (*scripted)();
  static thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return generator();
}

ScopedRandomNumbers::ScopedRandomNumbers(std::function<uint64_t()> source)
    : source_(std::move(source)), former_(std::exchange(scripted, &source_)) {}

ScopedRandomNumbers::~ScopedRandomNumbers() { scripted = former_; }

}  // namespace pawl
