#include "worker/device/testing/remote_memory_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/device/cpu/stream.h"

namespace pawl {
namespace {

size_t Extent(ConstMatrix x) {
  return x.rows == 0 || x.columns == 0 ? 0 : (x.rows - 1) * x.stride + x.columns;
}

[[noreturn]] void Misuse(absl::string_view message) {
  std::fprintf(stderr, "RemoteMemoryDevice: %s\n", std::string(message).c_str());
  std::abort();
}

class RemoteStream final : public Stream {
 public:
  explicit RemoteStream(RemoteMemoryDevice& device) : device_(device) {}

  absl::Status Synchronize() override {
    CheckIsNotRecording();
    RunUntil(*state_, state_->given);
    return absl::OkStatus();
  }
  Mark PlaceMark() override {
    CheckIsNotRecording();
    return state_->given;
  }
  absl::Status Await(Mark mark) override {
    CheckIsNotRecording();
    RunUntil(*state_, mark);
    return absl::OkStatus();
  }
  void WaitFor(Stream& other) override {
    CheckIsNotRecording();
    static_cast<RemoteStream&>(other).CheckIsNotRecording();
    std::shared_ptr<State> before = static_cast<RemoteStream&>(other).state_;
    const uint64_t place = before->given;
    Give([before, place] { RunUntil(*before, place); });
  }

  bool BeginRecording() override {
    recording_ = std::make_unique<RemoteRecording>();
    return true;
  }
  std::unique_ptr<Recording> EndRecording() override { return std::move(recording_); }
  void Play(Recording& recording) override {
    for (const auto& work : static_cast<RemoteRecording&>(recording).work) Give(work);
  }

  void CopyToDevice(const void* host, size_t bytes, void* to) override {
    CheckIsNotRecording();
    const char* const from = device_.Host(static_cast<const char*>(host), bytes);
    char* const address = static_cast<char*>(to);
    if (device_.reads() == RemoteMemoryDevice::Reads::kInTheCall) {
      return Do([copy = std::vector<char>(from, from + bytes), address](auto real) {
        std::copy(copy.begin(), copy.end(), real(address, copy.size()));
      });
    }
    Do([=](auto real) { std::copy_n(from, bytes, real(address, bytes)); });
  }
  void CopyToHost(const void* from, size_t bytes, void* host) override {
    CheckIsNotRecording();
    const char* const address = static_cast<const char*>(from);
    char* const to = device_.Host(static_cast<char*>(host), bytes);
    Do([=](auto real) { std::copy_n(real(address, bytes), bytes, to); });
  }
  void Zero(void* data, size_t bytes) override {
    Do([=, this](auto real) { cpu_.Zero(real(static_cast<char*>(data), bytes), bytes); });
  }

  void Copy(ConstMatrix from, Write write, Matrix to) override {
    Do([=, this](auto real) { cpu_.Copy(real(from), write, real(to)); });
  }
  void Gemm(Factors factors, Transpose transpose_a, Transpose transpose_b, float alpha,
            ConstMatrix a, ConstMatrix b, float beta, Matrix c) override {
    Do([=, this](auto real) {
      cpu_.Gemm(factors, transpose_a, transpose_b, alpha, real(a), real(b), beta, real(c));
    });
  }
  void AddBias(const float* bias, Matrix x) override {
    Do([=, this](auto real) { cpu_.AddBias(real(bias, x.columns), real(x)); });
  }
  void SumColumns(ConstMatrix x, float* sums) override {
    Do([=, this](auto real) { cpu_.SumColumns(real(x), real(sums, x.columns)); });
  }
  void Axpy(size_t count, float alpha, const float* x, float* y) override {
    Do([=, this](auto real) { cpu_.Axpy(count, alpha, real(x, count), real(y, count)); });
  }
  void AddConstant(size_t count, float value, float* x) override {
    Do([=, this](auto real) { cpu_.AddConstant(count, value, real(x, count)); });
  }
  void Scale(size_t count, float alpha, float* x) override {
    Do([=, this](auto real) { cpu_.Scale(count, alpha, real(x, count)); });
  }
  void Relu(Matrix x) override {
    Do([=, this](auto real) { cpu_.Relu(real(x)); });
  }
  void ReluBackward(ConstMatrix activation, Matrix gradient) override {
    Do([=, this](auto real) { cpu_.ReluBackward(real(activation), real(gradient)); });
  }
  void Multiply(ConstMatrix a, ConstMatrix b, Write write, Matrix out) override {
    Do([=, this](auto real) { cpu_.Multiply(real(a), real(b), write, real(out)); });
  }
  void RowDots(ConstMatrix a, ConstMatrix b, Matrix out) override {
    Do([=, this](auto real) { cpu_.RowDots(real(a), real(b), real(out)); });
  }
  void Softmax(ConstMatrix x, Matrix y) override {
    Do([=, this](auto real) { cpu_.Softmax(real(x), real(y)); });
  }
  void MaxOfEntries(const Entries& entries, ConstMatrix rows, Matrix largest,
                    uint32_t* chosen) override {
    Do([=, this](auto real) {
      cpu_.MaxOfEntries(real(entries), real(rows), real(largest),
                        real(chosen, largest.rows * largest.columns));
    });
  }
  void MaxOfEntriesBackward(const Entries& entries, ConstMatrix largest_gradient,
                            const uint32_t* chosen, Matrix rows_gradient) override {
    Do([=, this](auto real) {
      cpu_.MaxOfEntriesBackward(real(entries), real(largest_gradient),
                                real(chosen, largest_gradient.rows * largest_gradient.columns),
                                real(rows_gradient));
    });
  }
  void PoolRows(const Entries& entries, PoolOver over, ConstMatrix rows, Matrix pooled) override {
    Do([=, this](auto real) { cpu_.PoolRows(real(entries), over, real(rows), real(pooled)); });
  }
  void PoolRowsBackward(const Entries& entries, PoolOver over, ConstMatrix pooled_gradient,
                        Matrix rows_gradient) override {
    Do([=, this](auto real) {
      cpu_.PoolRowsBackward(real(entries), over, real(pooled_gradient), real(rows_gradient));
    });
  }
  void SumOfDots(ConstMatrix vectors, size_t dim, Matrix sums, float* outputs) override {
    Do([=, this](auto real) {
      cpu_.SumOfDots(real(vectors), dim, real(sums), real(outputs, vectors.rows));
    });
  }
  void SumOfDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix sums,
                         const float* output_gradients, Write write,
                         Matrix vectors_gradient) override {
    Do([=, this](auto real) {
      cpu_.SumOfDotsBackward(real(vectors), dim, real(sums), real(output_gradients, vectors.rows),
                             write, real(vectors_gradient));
    });
  }
  void PairwiseDots(ConstMatrix vectors, size_t dim, Matrix dots) override {
    Do([=, this](auto real) { cpu_.PairwiseDots(real(vectors), dim, real(dots)); });
  }
  void PairwiseDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix dot_gradients, Write write,
                            Matrix vectors_gradient) override {
    Do([=, this](auto real) {
      cpu_.PairwiseDotsBackward(real(vectors), dim, real(dot_gradients), write,
                                real(vectors_gradient));
    });
  }
  void LogisticLoss(size_t samples, const float* logits, const float* labels, const float* weights,
                    float gradient_scale, float* gradients, double* loss_sum) override {
    Do([=, this](auto real) {
      cpu_.LogisticLoss(samples, real(logits, samples), real(labels, samples),
                        Weights(real, weights, samples), gradient_scale, real(gradients, samples),
                        real(loss_sum, 1));
    });
  }
  void SquaredLoss(size_t samples, const float* predictions, const float* labels,
                   const float* weights, float gradient_scale, float* gradients,
                   double* loss_sum) override {
    Do([=, this](auto real) {
      cpu_.SquaredLoss(samples, real(predictions, samples), real(labels, samples),
                       Weights(real, weights, samples), gradient_scale, real(gradients, samples),
                       real(loss_sum, 1));
    });
  }
  void SoftmaxLoss(ConstMatrix logits, const float* labels, const float* weights,
                   float gradient_scale, Matrix gradients, double* loss_sum) override {
    Do([=, this](auto real) {
      cpu_.SoftmaxLoss(real(logits), real(labels, logits.rows), Weights(real, weights, logits.rows),
                       gradient_scale, real(gradients), real(loss_sum, 1));
    });
  }
  void FindNotFinite(size_t count, const float* x, float* found) override {
    Do([=, this](auto real) { cpu_.FindNotFinite(count, real(x, count), real(found, 1)); });
  }
  void Update(const UpdateRule& rule, const UpdatePosition& position, float scale,
              absl::Span<const UpdatedRow> rows, const float* gradients, float* weights,
              float* slots) override {
    // Checked row by row: the gaps between them need not be device memory.
    for (const UpdatedRow& row : rows) {
      Do([=, this, &rule](auto real) {
        const UpdatedRow whole = {.begin = 0, .count = row.count, .slots_begin = 0};
        cpu_.Update(rule, position, scale, absl::MakeConstSpan(&whole, 1),
                    real(gradients + row.begin, row.count), real(weights + row.begin, row.count),
                    real(slots + row.slots_begin, rule.SlotCount(row.count)));
      });
    }
  }

 private:
  // The work that a stream was given; shared by streams that wait for it.
  struct State {
    std::deque<std::function<void()>> work;
    uint64_t given = 0;
    uint64_t done = 0;
  };

  struct RemoteRecording final : Recording {
    std::vector<std::function<void()>> work;
  };

  // Translates device addresses of an operation to the memory behind them.
  struct Translation {
    template <typename T>
    T* operator()(T* address, size_t count) const {
      return device.Real(address, count * sizeof(T));
    }
    ConstMatrix operator()(ConstMatrix x) const {
      return {(*this)(x.data, Extent(x)), x.rows, x.columns, x.stride};
    }
    Matrix operator()(Matrix x) const {
      return {(*this)(x.data, Extent(x)), x.rows, x.columns, x.stride};
    }
    Entries operator()(Entries entries) const {
      entries.field_begin = (*this)(entries.field_begin, entries.samples * entries.fields + 1);
      entries.entry_key = (*this)(entries.entry_key, entries.entries);
      entries.entry_value = (*this)(entries.entry_value, entries.entries);
      return entries;
    }

    RemoteMemoryDevice& device;
  };

  static const float* Weights(const Translation& real, const float* weights, size_t count) {
    return weights == nullptr ? nullptr : real(weights, count);
  }

  static void RunUntil(State& state, uint64_t place) {
    while (state.done < place) {
      const std::function<void()> work = std::move(state.work.front());
      state.work.pop_front();
      ++state.done;
      work();
    }
  }

  void CheckIsNotRecording() const {
    if (recording_ != nullptr)
      Misuse("an operation that cannot be recorded was called during a recording");
  }

  void Give(std::function<void()> work) {
    if (recording_ != nullptr) return recording_->work.push_back(std::move(work));
    state_->work.push_back(std::move(work));
    ++state_->given;
  }

  template <typename Operation>
  void Do(Operation operation) {
    Give([operation, real = Translation{device_}] { operation(real); });
  }

  RemoteMemoryDevice& device_;
  CpuStream cpu_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  // Null while nothing is recorded.
  std::unique_ptr<RemoteRecording> recording_;
};

size_t Pages(size_t bytes) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // One more inaccessible page; empty allocations have an address too.
  return (bytes / page + 2) * page;
}

}  // namespace

RemoteMemoryDevice::~RemoteMemoryDevice() {
  const MutexLock lock(mu_);
  if (!memories_.empty())
    Misuse(absl::StrCat(memories_.size(), " pieces of memory were not freed"));
}

absl::StatusOr<void*> RemoteMemoryDevice::Allocate(size_t bytes) {
  PAWL_ASSIGN_OR_RETURN(void* const behind, cpu_.Allocate(bytes));
  std::memset(behind, 0xff, bytes);
  void* const address =
      mmap(nullptr, Pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    cpu_.Free(behind);
    return absl::ResourceExhaustedError(absl::StrCat("no addresses for ", bytes, " bytes"));
  }
  const MutexLock lock(mu_);
  memories_[static_cast<char*>(address)] = {Pages(bytes), bytes, behind};
  return address;
}

void RemoteMemoryDevice::Free(void* data) {
  const MutexLock lock(mu_);
  const auto at = memories_.find(static_cast<char*>(data));
  if (at == memories_.end()) Misuse("freed memory that was not allocated");
  cpu_.Free(at->second.behind);
  munmap(data, at->second.reserved);
  memories_.erase(at);
}

absl::StatusOr<std::unique_ptr<Stream>> RemoteMemoryDevice::CreateStream() {
  return std::make_unique<RemoteStream>(*this);
}

void* RemoteMemoryDevice::Behind(const void* address, size_t bytes) {
  const MutexLock lock(mu_);
  // Nothing is behind an empty range. Its address is not null, to which no offset may be added.
  static char nothing;
  if (bytes == 0) return &nothing;
  const char* const begin = static_cast<const char*>(address);
  auto at = memories_.upper_bound(begin);
  if (at != memories_.begin()) {
    --at;
    const size_t offset = begin - at->first;
    if (offset + bytes <= at->second.bytes) return static_cast<char*>(at->second.behind) + offset;
  }
  Misuse(absl::StrCat("an operation was given ", bytes, " bytes that are not the device's memory"));
}

void RemoteMemoryDevice::CheckIsHostMemory(const void* address, size_t bytes) {
  const MutexLock lock(mu_);
  const char* const begin = static_cast<const char*>(address);
  const auto after = memories_.lower_bound(begin + bytes);
  if (bytes == 0 || after == memories_.begin()) return;
  const auto before = std::prev(after);
  if (before->first + before->second.reserved > begin)
    Misuse("device memory was passed as host memory");
}

}  // namespace pawl
