#include "worker/collective/staged_collective.h"

#include <algorithm>
#include <future>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/futures.h"

namespace pawl {
namespace {

constexpr size_t kLargestElementBytes = 8;
// A member did not arrive in time, or the device was too slow.
constexpr char kNotInTime[] = "the operation did not end in time";

// Waits until the deadline and then aborts `inner`. The operation has ended on return.
absl::Status AwaitUntil(std::future<absl::Status>& end, MonotonicTime deadline, Collective& inner) {
  if (end.wait_until(deadline) != std::future_status::ready) {
    inner.Abort(absl::DeadlineExceededError(kNotInTime));
  }
  return end.get();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedCollective>> StagedCollective::Create(
    std::unique_ptr<ConnectableCollective> inner, Device& device, const Options& options) {
  if (options.piece_bytes / kLargestElementBytes < inner->size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pieces of ", options.piece_bytes, " bytes in a group of ", inner->size(), " members"));
  }
  auto collective = absl::WrapUnique(new StagedCollective(std::move(inner), device, options));
  PAWL_ASSIGN_OR_RETURN(collective->stream_, device.CreateStream());
  for (Piece& place : collective->places_) {
    for (char** const side : {&place.input, &place.output}) {
      PAWL_ASSIGN_OR_RETURN(void* const memory, device.Allocate(options.piece_bytes));
      *side = static_cast<char*>(memory);
    }
  }
  StagedCollective* const it = collective.get();
  // This reason does not matter: the operations here end with the thread's own error.
  collective->thread_ = std::make_unique<OperationThread>(nullptr, [it] {
    it->inner_->Abort(absl::CancelledError("the staged collective has ended"));
  });
  return collective;
}

StagedCollective::~StagedCollective() {
  if (thread_ != nullptr) thread_->Stop();
  // Nothing runs any more, not even on the device.
  stream_.reset();
  if (hangs()) return;
  for (const Piece& place : places_) {
    for (char* const side : {place.input, place.output}) {
      if (side != nullptr) device_.Free(side);
    }
  }
}

absl::Status StagedCollective::status() const {
  absl::Status status = thread_->status();
  return status.ok() ? inner_->status() : status;
}

void StagedCollective::Connect(std::vector<std::string> introductions, MonotonicDuration timeout,
                               Done done) {
  thread_->Add(
      timeout,
      [this, introductions = std::move(introductions)](MonotonicTime deadline) mutable {
        std::future<absl::Status> end;
        inner_->Connect(std::move(introductions), deadline - Clock::Real().Now(), Fulfilling(end));
        absl::Status status = AwaitUntil(end, deadline, *inner_);
        connected_ = status.ok();
        return status;
      },
      std::move(done));
}

void StagedCollective::Add(size_t count, size_t parts, CollectiveType type,
                           MonotonicDuration timeout, Stages stages, Done done) {
  thread_->Add(
      timeout,
      [=, this, stages = std::move(stages)](MonotonicTime deadline) -> absl::Status {
        const size_t element_bytes = BytesOf(type);
        if (element_bytes == 0) {
          return absl::InvalidArgumentError(absl::StrCat("unknown type ", static_cast<int>(type)));
        }
        if (count > std::numeric_limits<size_t>::max() / element_bytes / parts) {
          return absl::InvalidArgumentError(
              absl::StrCat(count, " elements exceed the address space"));
        }
        if (!connected_) return absl::FailedPreconditionError("the members are not connected");
        return RunPieces(count, options_.piece_bytes / element_bytes / parts, deadline, stages);
      },
      std::move(done));
}

absl::Status StagedCollective::Copy(const CopyStage& copies, const Piece& piece) {
  copies(piece);
  absl::Status status = stream_->Synchronize();
  if (absl::IsDeadlineExceeded(status)) hangs_ = true;
  return status;
}

absl::Status StagedCollective::RunPieces(size_t count, size_t piece_count, MonotonicTime deadline,
                                         const Stages& stages) {
  // Also without elements, because inner checks the root and the reduction.
  const size_t pieces = std::max<size_t>(1, (count + piece_count - 1) / piece_count);
  std::future<absl::Status> ends[2];
  const auto begin_piece = [&](size_t number) -> absl::Status {
    // Reuses the memory of the piece before the last one, which has been copied back.
    Piece& piece = places_[number % 2];
    piece.begin = number * piece_count;
    piece.count = std::min(piece_count, count - piece.begin);
    PAWL_RETURN_IF_ERROR(Copy(stages.copy_in, piece));
    const MonotonicDuration left = deadline - Clock::Real().Now();
    if (left <= MonotonicDuration::zero()) return absl::DeadlineExceededError(kNotInTime);
    stages.start(piece, left, Fulfilling(ends[number % 2]));
    return absl::OkStatus();
  };
  const auto end_piece = [&](size_t number) -> absl::Status {
    PAWL_RETURN_IF_ERROR(AwaitUntil(ends[number % 2], deadline, *inner_));
    return Copy(stages.copy_out, places_[number % 2]);
  };

  absl::Status status;
  for (size_t next = 0; next <= pieces && status.ok(); ++next) {
    // Inner always has the next piece when it finishes one.
    if (next < pieces) status = begin_piece(next);
    if (next > 0 && status.ok()) status = end_piece(next - 1);
  }
  if (status.ok()) return status;
  inner_->Abort(status);
  for (std::future<absl::Status>& end : ends) {
    if (end.valid()) end.wait();
  }
  return status;
}

StagedCollective::CopyStage StagedCollective::Input(const void* input, CollectiveType type) {
  return
      [this, from = static_cast<const char*>(input), element = BytesOf(type)](const Piece& piece) {
        stream_->CopyToDevice(from + piece.begin * element, piece.count * element, piece.input);
      };
}

StagedCollective::CopyStage StagedCollective::Output(void* output, CollectiveType type) {
  return [this, to = static_cast<char*>(output), element = BytesOf(type)](const Piece& piece) {
    stream_->CopyToHost(piece.output, piece.count * element, to + piece.begin * element);
  };
}

void StagedCollective::AllReduce(const void* input, void* output, size_t count, CollectiveType type,
                                 Reduction reduction, MonotonicDuration timeout, Done done) {
  Stages stages;
  stages.copy_in = Input(input, type);
  stages.start = [=, this](const Piece& piece, MonotonicDuration left, Done end) {
    inner_->AllReduce(piece.input, piece.output, piece.count, type, reduction, left,
                      std::move(end));
  };
  stages.copy_out = Output(output, type);
  Add(count, 1, type, timeout, std::move(stages), std::move(done));
}

void StagedCollective::AllReduceOnDevice(const void* input, void* output, size_t count,
                                         CollectiveType type, Reduction reduction,
                                         MonotonicDuration timeout, Done done) {
  const size_t element = BytesOf(type);
  const char* const from = static_cast<const char*>(input);
  char* const to = static_cast<char*>(output);
  Stages stages;
  stages.copy_in = [](const Piece&) {};
  stages.start = [=, this](const Piece& piece, MonotonicDuration left, Done end) {
    inner_->AllReduce(from + piece.begin * element, to + piece.begin * element, piece.count, type,
                      reduction, left, std::move(end));
  };
  stages.copy_out = [](const Piece&) {};
  Add(count, 1, type, timeout, std::move(stages), std::move(done));
}

void StagedCollective::Broadcast(void* data, size_t count, CollectiveType type, size_t root,
                                 MonotonicDuration timeout, Done done) {
  const size_t element = BytesOf(type);
  char* const memory = static_cast<char*>(data);
  Stages stages;
  stages.copy_in = [=, this](const Piece& piece) {
    if (root != place()) return;
    stream_->CopyToDevice(memory + piece.begin * element, piece.count * element, piece.input);
  };
  stages.start = [=, this](const Piece& piece, MonotonicDuration left, Done end) {
    inner_->Broadcast(piece.input, piece.count, type, root, left, std::move(end));
  };
  stages.copy_out = [=, this](const Piece& piece) {
    if (root == place()) return;
    stream_->CopyToHost(piece.input, piece.count * element, memory + piece.begin * element);
  };
  Add(count, 1, type, timeout, std::move(stages), std::move(done));
}

void StagedCollective::AllGather(const void* input, void* output, size_t count, CollectiveType type,
                                 MonotonicDuration timeout, Done done) {
  const size_t element = BytesOf(type);
  char* const to = static_cast<char*>(output);
  Stages stages;
  // An input that is part of the output is overwritten only after it has been read: by elements of
  // this piece, or in place.
  stages.copy_in = Input(input, type);
  stages.start = [=, this](const Piece& piece, MonotonicDuration left, Done end) {
    inner_->AllGather(piece.input, piece.output, piece.count, type, left, std::move(end));
  };
  stages.copy_out = [=, this](const Piece& piece) {
    for (size_t p = 0; p < size(); ++p) {
      stream_->CopyToHost(piece.output + p * piece.count * element, piece.count * element,
                          to + (p * count + piece.begin) * element);
    }
  };
  Add(count, size(), type, timeout, std::move(stages), std::move(done));
}

void StagedCollective::ReduceScatter(const void* input, void* output, size_t count,
                                     CollectiveType type, Reduction reduction,
                                     MonotonicDuration timeout, Done done) {
  const size_t element = BytesOf(type);
  const char* const from = static_cast<const char*>(input);
  Stages stages;
  stages.copy_in = [=, this](const Piece& piece) {
    for (size_t p = 0; p < size(); ++p) {
      stream_->CopyToDevice(from + (p * count + piece.begin) * element, piece.count * element,
                            piece.input + p * piece.count * element);
    }
  };
  stages.start = [=, this](const Piece& piece, MonotonicDuration left, Done end) {
    inner_->ReduceScatter(piece.input, piece.output, piece.count, type, reduction, left,
                          std::move(end));
  };
  stages.copy_out = Output(output, type);
  Add(count, size(), type, timeout, std::move(stages), std::move(done));
}

CollectiveFactory StagedCollectives(CollectiveFactory inner, Device& device) {
  return [inner = std::move(inner), &device](
             size_t size, size_t place) -> absl::StatusOr<std::unique_ptr<ConnectableCollective>> {
    PAWL_ASSIGN_OR_RETURN(std::unique_ptr<ConnectableCollective> made, inner(size, place));
    return StagedCollective::Create(std::move(made), device, {});
  };
}

}  // namespace pawl
