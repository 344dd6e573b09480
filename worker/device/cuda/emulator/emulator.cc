#include "worker/device/cuda/emulator/emulator.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <vector>

namespace pawl::cuda::emulator {
namespace {

constexpr size_t kStackBytes = 64 << 10;

enum class State { kReady, kWaitsForWarp, kWaitsForBlock, kDone };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  State state = State::kDone;
  uint3 index;
};

// The running threads; the runtime runs one launch at a time.
std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<double> slots;
std::vector<float> shared;
ucontext_t scheduler;
size_t running = 0;
const std::function<void()>* body = nullptr;
std::mt19937 random_order{1};

void RunFiber() {
  (*body)();
  fibers[running]->state = State::kDone;
  swapcontext(&fibers[running]->context, &scheduler);
}

void Wait(State state) {
  Fiber& fiber = *fibers[running];
  fiber.state = state;
  swapcontext(&fiber.context, &scheduler);
}

// Threads of [begin, end) that wait in this way may continue once none of the others can still
// arrive.
bool Release(size_t begin, size_t end, State waiting) {
  bool any = false;
  for (size_t t = begin; t < end; ++t) {
    if (fibers[t]->state == State::kDone) continue;
    if (fibers[t]->state != waiting) return false;
    any = true;
  }
  for (size_t t = begin; t < end; ++t) {
    if (fibers[t]->state == waiting) fibers[t]->state = State::kReady;
  }
  return any;
}

// A separate function, because getcontext returns twice.
__attribute__((noinline)) void Prepare(Fiber& fiber) {
  fiber.state = State::kReady;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = &scheduler;
  makecontext(&fiber.context, &RunFiber, 0);
}

void RunBlock(size_t threads) {
  // Catches kernels that read memory before they have written it.
  std::fill(shared.begin(), shared.end(), std::numeric_limits<float>::quiet_NaN());
  std::vector<size_t> order(threads);
  for (size_t t = 0; t < threads; ++t) {
    order[t] = t;
    Fiber& fiber = *fibers[t];
    fiber.index = {static_cast<unsigned>(t % blockDim.x),
                   static_cast<unsigned>(t / blockDim.x % blockDim.y),
                   static_cast<unsigned>(t / blockDim.x / blockDim.y)};
    Prepare(fiber);
  }
  while (true) {
    std::shuffle(order.begin(), order.end(), random_order);
    bool any = false;
    for (const size_t t : order) {
      if (fibers[t]->state != State::kReady) continue;
      any = true;
      running = t;
      threadIdx = fibers[t]->index;
      swapcontext(&scheduler, &fibers[t]->context);
    }
    if (std::all_of(fibers.begin(), fibers.begin() + threads,
                    [](auto& fiber) { return fiber->state == State::kDone; })) {
      return;
    }
    for (size_t warp = 0; warp < threads; warp += kWarpThreads) {
      any |= Release(warp, std::min<size_t>(warp + kWarpThreads, threads), State::kWaitsForWarp);
    }
    any |= Release(0, threads, State::kWaitsForBlock);
    if (!any) {
      std::fprintf(stderr,
                   "emulator: threads of a block wait at different synchronization points\n");
      std::abort();
    }
  }
}

}  // namespace

void Run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel) {
  const size_t threads = size_t{block.x} * block.y * block.z;
  while (fibers.size() < threads) fibers.push_back(std::make_unique<Fiber>());
  slots.assign(threads + kWarpThreads, 0);
  shared.assign((shared_bytes + sizeof(float) - 1) / sizeof(float) + 4, 0);
  body = &kernel;
  gridDim = grid;
  blockDim = block;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        RunBlock(threads);
      }
    }
  }
}

float* SharedFloats() {
  // Aligned as CUDA does.
  const auto address = reinterpret_cast<uintptr_t>(shared.data());
  return shared.data() + (16 - address % 16) % 16 / sizeof(float);
}

void WaitForBlock() { Wait(State::kWaitsForBlock); }
void WaitForWarp() { Wait(State::kWaitsForWarp); }
unsigned Lane() { return static_cast<unsigned>(running % kWarpThreads); }
double* WarpSlot(unsigned lane) { return &slots[running / kWarpThreads * kWarpThreads + lane]; }

}  // namespace pawl::cuda::emulator
