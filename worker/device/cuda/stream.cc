#include "worker/device/cuda/stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/device/cuda/status.h"

namespace pawl {
namespace {

class CudaGraph final : public Recording {
 public:
  CudaGraph(int number, cudaGraphExec_t graph) : number_(number), graph_(graph) {}
  ~CudaGraph() override {
    static_cast<void>(cudaSetDevice(number_));
    // Does not wait: a running graph is freed when it has ended.
    static_cast<void>(cudaGraphExecDestroy(graph_));
    static_cast<void>(cudaGetLastError());
  }

  cudaGraphExec_t graph() const { return graph_; }

 private:
  const int number_;
  CUgraphExec_st* const graph_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> CudaStream::Create(const Options& options) {
  std::unique_ptr<CudaStream> stream(new CudaStream(options));
  PAWL_RETURN_IF_ERROR(stream->Initialize());
  return std::unique_ptr<Stream>(std::move(stream));
}

absl::Status CudaStream::Initialize() {
  operation_ = "creating a stream";
  PAWL_RETURN_IF_ERROR(StatusOf(cudaSetDevice(options_.number), Where()));
  // Work on the default stream does not block it.
  PAWL_RETURN_IF_ERROR(
      StatusOf(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), Where()));
  return StatusOf(cudaEventCreateWithFlags(&order_event_, cudaEventDisableTiming), Where());
}

CudaStream::~CudaStream() {
  static_cast<void>(cudaSetDevice(options_.number));
  if (stream_ != nullptr && !hangs_) Drain();
  if (hangs_) {
    // Each of the calls below might wait for the GPU, or the GPU might still use what they free.
    staging_.Abandon();
    return;
  }
  if (gemm_ != nullptr) static_cast<void>(cublasDestroy(gemm_));
  if (gemm_workspace_ != nullptr) static_cast<void>(cudaFreeAsync(gemm_workspace_, stream_));
  if (order_memory_ != nullptr) static_cast<void>(cudaFreeAsync(order_memory_, stream_));
  for (const MarkRecord& mark : mark_records_) static_cast<void>(cudaEventDestroy(mark.event));
  if (order_event_ != nullptr) static_cast<void>(cudaEventDestroy(order_event_));
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
}

std::string CudaStream::Where() const {
  return absl::StrCat("GPU ", options_.number, ": ", operation_);
}

bool CudaStream::Begin(const char* operation) {
  if (!status_.ok()) return false;
  operation_ = operation;
  return Check(cudaSetDevice(options_.number));
}

void CudaStream::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

bool CudaStream::Check(cudaError_t error) {
  if (error == cudaSuccess) return true;
  Fail(StatusOf(error, Where()));
  // Errors that leave the context usable are reported once.
  static_cast<void>(cudaGetLastError());
  return false;
}

bool CudaStream::Check(cublasStatus_t error) {
  if (error == CUBLAS_STATUS_SUCCESS) return true;
  Fail(StatusOf(error, Where()));
  return false;
}

bool CudaStream::Check(absl::Status status) {
  if (status.ok()) return true;
  Fail(std::move(status));
  return false;
}

absl::Status CudaStream::AwaitQuery(const std::function<cudaError_t()>& query) {
  absl::Status status =
      pawl::Await(query, options_.hang_limit,
                  absl::StrCat("GPU ", options_.number, ": operations up to ", operation_));
  if (absl::IsDeadlineExceeded(status)) hangs_ = true;
  return status;
}

void CudaStream::Deliver(uint64_t until) {
  while (delivered_ < until) {
    const Download& download = downloads_.front();
    std::memcpy(download.host, download.from, download.bytes);
    downloads_.pop_front();
    ++delivered_;
  }
}

bool CudaStream::Drain() {
  if (hangs_) return false;
  // Also after an error: earlier operations of the stream still use its memory.
  if (!Check(AwaitQuery([this] { return cudaStreamQuery(stream_); }))) return false;
  if (!status_.ok()) return false;
  Deliver(delivered_ + downloads_.size());
  staging_.TakeBack();
  return true;
}

absl::Status CudaStream::Synchronize() {
  if (!hangs_) static_cast<void>(Check(cudaSetDevice(options_.number)));
  static_cast<void>(Drain());
  // A hanging GPU is not awaited again.
  if (hangs_) return status_;
  downloads_.clear();
  delivered_ = 0;
  marks_ = 0;
  is_ordered_ = false;
  staging_.TakeBack();
  return std::exchange(status_, absl::OkStatus());
}

Stream::Mark CudaStream::PlaceMark() {
  if (!Begin("PlaceMark")) return 0;
  if (marks_ == kMaxMarks) {
    Fail(absl::ResourceExhaustedError(absl::StrCat(Where(), ": more than ", kMaxMarks, " marks")));
    return 0;
  }
  if (marks_ == mark_records_.size()) {
    cudaEvent_t event = nullptr;
    if (!Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming))) return 0;
    mark_records_.push_back({event, 0});
  }
  MarkRecord& record = mark_records_[marks_];
  if (!Check(cudaEventRecord(record.event, stream_))) return 0;
  record.downloads = delivered_ + downloads_.size();
  return marks_++;
}

absl::Status CudaStream::Await(Mark mark) {
  if (!status_.ok()) return status_;
  if (mark >= marks_) return absl::InternalError(absl::StrCat("invalid mark ", mark));
  const MarkRecord& record = mark_records_[mark];
  if (!Check(cudaSetDevice(options_.number))) return status_;
  if (!Check(AwaitQuery([&record] { return cudaEventQuery(record.event); }))) return status_;
  Deliver(record.downloads);
  return absl::OkStatus();
}

void CudaStream::WaitFor(Stream& other) {
  CudaStream& before = static_cast<CudaStream&>(other);
  // The other stream may have changed the entries.
  is_ordered_ = false;
  if (!Begin("WaitFor")) return;
  // Without the other stream's results, this stream's results are undefined too.
  if (!Check(before.status_)) return;
  if (!Check(cudaEventRecord(before.order_event_, before.stream_))) return;
  Check(cudaStreamWaitEvent(stream_, before.order_event_, 0));
}

bool CudaStream::BeginRecording() {
  if (!Begin("BeginRecording")) return false;
  // The workspace must not belong to the graph.
  if (gemm_ == nullptr && !Check(InitializeGemm())) return false;
  records_ = Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  return records_;
}

std::unique_ptr<Recording> CudaStream::EndRecording() {
  // Also after an error: the stream executes nothing until the capture has ended.
  records_ = false;
  if (status_.ok()) operation_ = "EndRecording";
  cudaGraph_t graph = nullptr;
  const bool captured = Check(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExec_t executable = nullptr;
  if (captured && status_.ok()) Check(cudaGraphInstantiate(&executable, graph, 0));
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  if (executable == nullptr) return nullptr;
  return std::make_unique<CudaGraph>(options_.number, executable);
}

void CudaStream::Play(Recording& recording) {
  is_ordered_ = false;
  if (!Begin("Play")) return;
  Check(cudaGraphLaunch(static_cast<CudaGraph&>(recording).graph(), stream_));
}

Staging::Piece CudaStream::TakePiece(size_t bytes) {
  absl::StatusOr<Staging::Piece> piece = staging_.Take(bytes);
  if (piece.ok() && piece->bytes == 0) {
    if (!Drain()) return {};
    piece = staging_.Take(bytes);
  }
  if (!Check(piece.status())) return {};
  return *piece;
}

void CudaStream::CopyToDevice(const void* host, size_t bytes, void* to) {
  is_ordered_ = false;
  if (bytes == 0 || !Begin("CopyToDevice")) return;
  const char* from = static_cast<const char*>(host);
  char* target = static_cast<char*>(to);
  // While the GPU copies one piece, this thread fills the next.
  while (bytes > 0) {
    const Staging::Piece piece = TakePiece(bytes);
    if (piece.bytes == 0) return;
    std::memcpy(piece.data, from, piece.bytes);
    if (!Check(cudaMemcpyAsync(target, piece.data, piece.bytes, cudaMemcpyHostToDevice, stream_)))
      return;
    from += piece.bytes;
    target += piece.bytes;
    bytes -= piece.bytes;
  }
}

void CudaStream::CopyToHost(const void* from, size_t bytes, void* host) {
  if (bytes == 0 || !Begin("CopyToHost")) return;
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(host);
  while (bytes > 0) {
    const Staging::Piece piece = TakePiece(bytes);
    if (piece.bytes == 0) return;
    if (!Check(cudaMemcpyAsync(piece.data, source, piece.bytes, cudaMemcpyDeviceToHost, stream_)))
      return;
    downloads_.push_back({piece.data, target, piece.bytes});
    source += piece.bytes;
    target += piece.bytes;
    bytes -= piece.bytes;
  }
}

void CudaStream::Zero(void* data, size_t bytes) {
  is_ordered_ = false;
  if (bytes == 0 || !Begin("Zero")) return;
  Check(cudaMemsetAsync(data, 0, bytes, stream_));
}

CudaStream::Scratch::Scratch(CudaStream& stream, size_t bytes) : stream_(stream) {
  if (bytes > 0) {
    ok_ = stream_.Check(
        cudaMallocFromPoolAsync(&data_, bytes, stream_.options_.pool, stream_.stream_));
  }
}

CudaStream::Scratch::~Scratch() {
  if (data_ != nullptr) stream_.Check(cudaFreeAsync(data_, stream_.stream_));
}

}  // namespace pawl
