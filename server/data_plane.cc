#include "server/data_plane.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// A routing table larger than this does not fit the metadata of an error; the client then asks the scheduler.
constexpr size_t kMaxAttachedRoutingBytes = 256 << 10;
// What a sender is told to wait when the bytes in flight are used up.
constexpr int kPushbackMs = 20;
// After this many refused requests only every so many-th is logged: a broken client must not fill the disk.
constexpr uint64_t kRefusalsLogged = 100;
constexpr uint64_t kRefusalLogInterval = 1000;

absl::string_view MethodName(Method method) {
  switch (method) {
    case Method::kPush:
      return "Push";
    case Method::kPull:
      return "Pull";
    case Method::kEndStep:
      return "EndStep";
    case Method::kTakeOver:
      return "TakeOver";
    case Method::kReplicate:
      return "Replicate";
    case Method::kInstallSnapshot:
      return "InstallSnapshot";
  }
  std::abort();
}

std::string DescribeSender(const RequestHeader& header) {
  switch (header.sender_case()) {
    case RequestHeader::kLogicalWorker:
      return absl::StrCat("logical worker ", header.logical_worker(), " incarnation ", header.incarnation(), " step ",
                          header.step());
    case RequestHeader::kClient:
      return absl::StrCat("client ", header.client(), " incarnation ", header.incarnation());
    default:
      return "a caller without a name";
  }
}

absl::Status WithPushback(absl::Status status) {
  absl::Status result(absl::StatusCode::kResourceExhausted, status.message());
  result.SetPayload(kPushbackPayloadUrl, absl::Cord(absl::StrCat(kPushbackMs)));
  return result;
}

absl::Status NoSuchTable(uint32_t table) {
  return absl::NotFoundError(absl::StrCat("there is no table with id ", table, "; create it through the scheduler first"));
}

template <typename Segments>
std::vector<uint32_t> PartitionsOf(const Segments& segments) {
  std::vector<uint32_t> partitions;
  for (const auto& segment : segments) partitions.push_back(segment.partition);
  std::sort(partitions.begin(), partitions.end());
  partitions.erase(std::unique(partitions.begin(), partitions.end()), partitions.end());
  return partitions;
}

}  // namespace

class DataPlane::Reservation {
 public:
  static std::shared_ptr<Reservation> Take(DataPlane& plane, size_t bytes) {
    const size_t before = plane.bytes_in_flight_->fetch_add(bytes, std::memory_order_relaxed);
    auto reservation = std::make_shared<Reservation>(plane.bytes_in_flight_, bytes);
    // One request is always taken, however large, or it would never be.
    if (before > 0 && before + bytes > plane.options_.max_bytes_in_flight) return nullptr;
    return reservation;
  }
  Reservation(std::shared_ptr<std::atomic<size_t>> in_flight, size_t bytes)
      : in_flight_(std::move(in_flight)), bytes_(bytes) {}
  ~Reservation() { in_flight_->fetch_sub(bytes_, std::memory_order_relaxed); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

 private:
  const std::shared_ptr<std::atomic<size_t>> in_flight_;
  const size_t bytes_;
};

DataPlane::DataPlane(const DataPlaneOptions& options, const Clock& clock)
    : options_(options), clock_(clock), view_(std::make_shared<View>()) {}

DataPlane::~DataPlane() { Close(absl::UnavailableError("the server is going away")); }

std::shared_ptr<const DataPlane::View> DataPlane::CurrentView() const {
  MutexLock lock(routing_mu_);
  return view_;
}

uint64_t DataPlane::epoch() const { return CurrentView()->epoch; }

uint64_t DataPlane::job_id() const { return CurrentView()->job_id; }

void DataPlane::Begin(uint64_t job_id, const Job& job) {
  MutexLock lock(routing_mu_);
  auto view = std::make_shared<View>(*view_);
  view->job_id = job_id;
  view->options.job_seed = job.seed();
  view->options.partitions = job.partitions();
  view->options.logical_workers = job.logical_workers();
  view->options.consistency = job.consistency();
  view->options.max_rows = options_.max_rows_per_partition;
  view_ = std::move(view);
}

void DataPlane::AdoptRouting(const RoutingTable& routing, uint32_t self) {
  MutexLock lock(routing_mu_);
  if (routing.epoch() <= view_->epoch) return;
  auto view = std::make_shared<View>(*view_);
  view->epoch = routing.epoch();
  view->routing = routing.SerializeAsString();
  view->partitions.resize(routing.primary_size());
  size_t hosted = 0;
  for (int p = 0; p < routing.primary_size(); ++p) {
    std::shared_ptr<HostedPartition>& partition = view->partitions[p];
    if (routing.primary(p) != self) {
      partition = nullptr;
      continue;
    }
    ++hosted;
    if (partition != nullptr) continue;
    partition = std::make_shared<HostedPartition>(p, view->options);
    MutexLock partition_lock(partition->mu);
    for (const auto& [id, table] : view->tables) {
      if (!partition->partition.CreateTable(table).ok()) std::abort();  // a new partition has no tables
    }
  }
  view_ = std::move(view);
  spdlog::info("routing epoch {}: primary of {} of {} partitions", routing.epoch(), hosted, routing.primary_size());
}

absl::Status DataPlane::CreateTable(const TableSpec& spec) {
  MutexLock lock(routing_mu_);
  auto table = TableSchema::Create(spec, view_->options.job_seed);
  PAWL_RETURN_IF_ERROR(table.status());
  if (const auto found = view_->tables.find(spec.id()); found != view_->tables.end()) {
    if (found->second->spec().SerializeAsString() == spec.SerializeAsString()) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat("table ", spec.id(), " exists as '", found->second->spec().name(),
                                                 "' with another spec"));
  }
  if (view_->tables.size() >= kMaxTables) {
    return absl::ResourceExhaustedError(absl::StrCat("a job has at most ", kMaxTables, " tables"));
  }
  auto view = std::make_shared<View>(*view_);
  view->tables[spec.id()] = *table;
  for (const auto& hosted : view->partitions) {
    if (hosted == nullptr) continue;
    MutexLock partition_lock(hosted->mu);
    if (!hosted->partition.CreateTable(*table).ok()) std::abort();  // it has the view's tables
  }
  view_ = std::move(view);
  spdlog::info("table {} '{}' created", spec.id(), spec.name());
  return absl::OkStatus();
}

absl::Status DataPlane::StaleRouting(const View& view, absl::string_view what) const {
  absl::Status status = absl::FailedPreconditionError(absl::StrCat(what, "; this server is at routing epoch ", view.epoch));
  if (view.routing.size() <= kMaxAttachedRoutingBytes) status.SetPayload(kRoutingPayloadUrl, absl::Cord(view.routing));
  return status;
}

absl::StatusOr<std::shared_ptr<const DataPlane::View>> DataPlane::Admit(const RequestHeader& header,
                                                                        Sender& sender) const {
  std::shared_ptr<const View> view;
  {
    MutexLock lock(routing_mu_);
    PAWL_RETURN_IF_ERROR(closed_);
    view = view_;
  }
  if (view->epoch == 0) return absl::UnavailableError("this server has no routing table yet");
  if (header.job_id() != view->job_id) {
    return absl::NotFoundError(absl::StrCat("job_id ", header.job_id(), " is not that of the job of this server"));
  }
  if (header.epoch() > view->epoch) {
    return absl::UnavailableError(absl::StrCat("routing epoch ", header.epoch(), " has not reached this server, which is at ", view->epoch));
  }
  if (header.epoch() < view->epoch) return StaleRouting(*view, absl::StrCat("routing epoch ", header.epoch(), " is old"));
  sender.incarnation = header.incarnation();
  switch (header.sender_case()) {
    case RequestHeader::kLogicalWorker:
      sender.kind = Sender::Kind::kLogicalWorker;
      sender.number = header.logical_worker();
      sender.step = header.step();
      if (sender.number >= view->options.logical_workers) {
        return absl::OutOfRangeError(absl::StrCat("logical_worker ", sender.number, ": the job has ",
                                                  view->options.logical_workers));
      }
      break;
    case RequestHeader::kClient:
      sender.kind = Sender::Kind::kClient;
      sender.number = header.client();
      break;
    default:
      break;
  }
  return view;
}

void DataPlane::Handle(Method method, IncomingMessage request, CallContext context, Reply reply) {
  switch (method) {
    case Method::kPush:
      return Push(std::move(request), std::move(context), std::move(reply));
    case Method::kPull:
      return Pull(std::move(request), std::move(context), std::move(reply));
    case Method::kEndStep:
      return EndStep(std::move(request), std::move(reply));
    default:
      return reply(absl::UnimplementedError(absl::StrCat(MethodName(method), " is not served here")), OutgoingMessage());
  }
}

absl::Status DataPlane::TooManyBytesInFlight() const {
  return WithPushback(
      absl::ResourceExhaustedError(absl::StrCat("more than ", options_.max_bytes_in_flight, " bytes are in flight")));
}

void DataPlane::Refuse(Method method, const RequestHeader* header, absl::Status status, Reply& reply) {
  const bool routing_moved = status.GetPayload(kRoutingPayloadUrl).has_value();
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition: {
      if (routing_moved) break;
      const uint64_t refused = requests_refused_.fetch_add(1, std::memory_order_relaxed) + 1;
      if (refused <= kRefusalsLogged || refused % kRefusalLogInterval == 0) {
        spdlog::warn("refused {} of {}: {} (refusal {})", std::string(MethodName(method)),
                     header == nullptr ? "an unknown sender" : DescribeSender(*header), status.ToString(), refused);
      }
      break;
    }
    default:
      break;
  }
  reply(std::move(status), OutgoingMessage());
}

void DataPlane::Push(IncomingMessage message, CallContext context, Reply reply) {
  auto decoded = DecodePushRequest(message.bytes);
  if (!decoded.ok()) return Refuse(Method::kPush, nullptr, decoded.status(), reply);
  auto request = std::make_shared<PushRequestView>(*std::move(decoded));
  const RequestHeader& header = request->header;
  Sender sender;
  auto view = Admit(header, sender);
  if (!view.ok()) return Refuse(Method::kPush, &header, view.status(), reply);
  if (header.sender_case() == RequestHeader::SENDER_NOT_SET) {
    return Refuse(Method::kPush, &header,
                  absl::InvalidArgumentError("header.sender is not set: a push needs a logical_worker or a client to be named by"), reply);
  }
  const auto reservation = Reservation::Take(*this, message.bytes.size());
  if (reservation == nullptr) {
    return reply(TooManyBytesInFlight(), OutgoingMessage());
  }
  for (const PushSegmentView& segment : request->segments) {
    absl::Status status;
    const auto table = (*view)->tables.find(segment.table);
    if (segment.partition >= (*view)->partitions.size()) {
      status = absl::OutOfRangeError(absl::StrCat("partition ", segment.partition, ": the job has ", (*view)->partitions.size()));
    } else if ((*view)->partitions[segment.partition] == nullptr) {
      status = StaleRouting(**view, absl::StrCat("partition ", segment.partition, " is elsewhere"));
    } else if (table == (*view)->tables.end()) {
      status = NoSuchTable(segment.table);
    } else {
      status = table->second->CheckGradient(segment.element_type, segment.keys, segment.values, segment.partition,
                                            (*view)->options.partitions);
    }
    if (!status.ok()) return Refuse(Method::kPush, &header, std::move(status), reply);
  }
  auto act = [this, view = *view, sender, request, reservation, owner = message.owner,
              reply = std::move(reply)](absl::Status status) mutable {
    if (!status.ok()) return Refuse(Method::kPush, &request->header, std::move(status), reply);
    auto response = ApplyPush(*view, sender, *request, owner);
    if (!response.ok()) return Refuse(Method::kPush, &request->header, response.status(), reply);
    reply(absl::OkStatus(), EncodeSmall(*response));
  };
  const bool waits_for_step =
      sender.kind == Sender::Kind::kLogicalWorker && (*view)->options.consistency.mode() == SYNC;
  if (!waits_for_step) return act(absl::OkStatus());
  // Who is out of turn or superseded is told at once, not after a wait.
  if (absl::Status status = CheckPush(**view, sender, *request); !status.ok()) return act(std::move(status));
  WaitForStep(**view, PartitionsOf(request->segments), sender.step, std::move(context), std::move(act));
}

absl::Status DataPlane::CheckPush(const View& view, const Sender& sender, const PushRequestView& request) const {
  absl::flat_hash_map<uint32_t, PushesAhead> ahead;
  for (const PushSegmentView& segment : request.segments) {
    HostedPartition& hosted = *view.partitions[segment.partition];
    PushesAhead& before = ahead[segment.partition];
    MutexLock lock(hosted.mu);
    const absl::Status status = hosted.partition.CheckPush(
        sender, segment.ordinal, segment.table, Gradient{segment.keys, segment.values, nullptr}, before);
    if (absl::IsUnavailable(status)) return WithPushback(status);
    PAWL_RETURN_IF_ERROR(status);
    before.keys += segment.keys.size() / sizeof(uint64_t);
    before.bytes += segment.keys.size() + segment.values.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<PushResponse> DataPlane::ApplyPush(const View& view, const Sender& sender,
                                                  const PushRequestView& request,
                                                  const std::shared_ptr<const void>& owner) {
  // All before any: a push that is refused has changed nothing. (What another
  // request changes in between can still split it; its push ids then complete it.)
  PAWL_RETURN_IF_ERROR(CheckPush(view, sender, request));
  const auto gradient = [&](const PushSegmentView& segment) { return Gradient{segment.keys, segment.values, owner}; };
  PushResponse response;
  for (const PushSegmentView& segment : request.segments) {
    HostedPartition& hosted = *view.partitions[segment.partition];
    MutexLock lock(hosted.mu);
    const auto outcome = hosted.partition.Push(sender, segment.ordinal, segment.table, gradient(segment));
    if (absl::IsUnavailable(outcome.status())) return WithPushback(outcome.status());
    PAWL_RETURN_IF_ERROR(outcome.status());
    switch (*outcome) {
      case PushOutcome::kAccepted:
        response.set_accepted(response.accepted() + 1);
        break;
      case PushOutcome::kDuplicate:
        ++hosted.pushes_deduplicated;
        response.set_deduplicated(response.deduplicated() + 1);
        break;
      case PushOutcome::kLate:
        response.set_late(response.late() + 1);
        break;
    }
  }
  return response;
}

void DataPlane::Pull(IncomingMessage message, CallContext context, Reply reply) {
  auto decoded = DecodePullRequest(message.bytes);
  if (!decoded.ok()) return Refuse(Method::kPull, nullptr, decoded.status(), reply);
  auto request = std::make_shared<PullRequestView>(*std::move(decoded));
  const RequestHeader& header = request->header;
  Sender sender;
  auto view = Admit(header, sender);
  if (!view.ok()) return Refuse(Method::kPull, &header, view.status(), reply);
  std::vector<size_t> value_bytes;
  size_t total_bytes = 0;
  for (const PullSegmentView& segment : request->segments) {
    absl::Status status;
    size_t bytes = 0;
    const auto table = (*view)->tables.find(segment.table);
    if (segment.partition >= (*view)->partitions.size()) {
      status = absl::OutOfRangeError(absl::StrCat("partition ", segment.partition, ": the job has ", (*view)->partitions.size()));
    } else if ((*view)->partitions[segment.partition] == nullptr) {
      status = StaleRouting(**view, absl::StrCat("partition ", segment.partition, " is elsewhere"));
    } else if (table == (*view)->tables.end()) {
      status = NoSuchTable(segment.table);
    } else {
      status = table->second->CheckKeys(segment.keys, segment.partition, (*view)->options.partitions, bytes);
      total_bytes += bytes;
      if (total_bytes > kMaxMessageBytes) {
        status = absl::InvalidArgumentError(absl::StrCat("the pulled values take more than ", kMaxMessageBytes,
                                                         " bytes; pull fewer keys at a time"));
      }
    }
    if (!status.ok()) return Refuse(Method::kPull, &header, std::move(status), reply);
    value_bytes.push_back(bytes);
  }
  const bool waits_for_step = sender.kind == Sender::Kind::kLogicalWorker;
  // The answer's bytes are reserved when it is made: pulls that wait must not
  // keep out the pushes that they wait for.
  auto act = [this, view = *view, sender, waits_for_step, request, total_bytes, value_bytes = std::move(value_bytes),
              owner = message.owner, reply = std::move(reply)](absl::Status status) mutable {
    if (!status.ok()) return reply(std::move(status), OutgoingMessage());
    auto reservation = Reservation::Take(*this, total_bytes);
    if (reservation == nullptr) return reply(TooManyBytesInFlight(), OutgoingMessage());
    reply(absl::OkStatus(),
          AnswerPull(*view, waits_for_step ? &sender : nullptr, *request, value_bytes, std::move(reservation)));
  };
  if (!waits_for_step) return act(absl::OkStatus());
  WaitForStep(**view, PartitionsOf(request->segments), sender.step, std::move(context), std::move(act));
}

OutgoingMessage DataPlane::AnswerPull(const View& view, const Sender* sender, const PullRequestView& request,
                                      const std::vector<size_t>& value_bytes,
                                      std::shared_ptr<const Reservation> reservation) {
  // Rows are copied, since many are small; blocks are lent.
  struct Owned {
    std::shared_ptr<const Reservation> reservation;  // destroyed last
    std::unique_ptr<char[]> rows;
    std::vector<BlockLoan> blocks;
  };
  const auto is_dense = [&](const PullSegmentView& segment) { return view.tables.find(segment.table)->second->is_dense(); };
  size_t row_bytes = 0;
  for (size_t i = 0; i < request.segments.size(); ++i) row_bytes += is_dense(request.segments[i]) ? 0 : value_bytes[i];
  const auto owned = std::make_shared<Owned>();
  owned->reservation = std::move(reservation);
  owned->rows = std::make_unique_for_overwrite<char[]>(row_bytes);
  std::vector<ByteView> results(request.segments.size());
  char* out = owned->rows.get();
  for (size_t i = 0; i < request.segments.size(); ++i) {
    const PullSegmentView& segment = request.segments[i];
    const bool lends = is_dense(segment);
    const size_t lent_before = owned->blocks.size();
    {
      HostedPartition& hosted = *view.partitions[segment.partition];
      MutexLock lock(hosted.mu);
      if (sender != nullptr) {
        hosted.staleness_max = std::max(hosted.staleness_max, hosted.partition.Staleness(sender->number, sender->step));
      }
      hosted.keys_pulled += segment.keys.size() / sizeof(uint64_t);
      if (lends) {
        hosted.partition.Lend(segment.table, segment.keys, owned->blocks);
      } else {
        hosted.partition.Pull(segment.table, segment.keys, out);
      }
    }
    if (lends) {
      for (size_t k = lent_before; k < owned->blocks.size(); ++k) {
        results[i].Append(owned->blocks[k].data(), owned->blocks[k].size() * sizeof(float));
      }
    } else {
      results[i].Append(out, value_bytes[i]);
      out += value_bytes[i];
    }
  }
  return EncodePullResponse(results, owned);
}

void DataPlane::WaitForStep(const View& view, const std::vector<uint32_t>& partitions, uint64_t step,
                            CallContext context, absl::AnyInvocable<void(absl::Status)> resume) {
  const bool waits = std::any_of(partitions.begin(), partitions.end(), [&](uint32_t p) {
    HostedPartition& hosted = *view.partitions[p];
    MutexLock lock(hosted.mu);
    return !hosted.partition.CanPull(step);
  });
  if (!waits) return resume(absl::OkStatus());
  const auto call = std::make_shared<WaitingCall>(std::move(context), std::move(resume));
  absl::Status refused;
  {
    MutexLock lock(waiting_mu_);
    refused = waiting_closed_;
    if (refused.ok() && waiting_.size() >= options_.max_waiting_calls) {
      refused = WithPushback(absl::ResourceExhaustedError(
          absl::StrCat("more than ", options_.max_waiting_calls, " calls wait for a step")));
    }
    if (refused.ok()) waiting_.push_back(call);
  }
  if (!refused.ok()) return call->Resume(std::move(refused));
  for (const uint32_t p : partitions) {
    HostedPartition& hosted = *view.partitions[p];
    MutexLock lock(hosted.mu);
    if (hosted.partition.CanPull(step)) continue;
    call->Add();
    hosted.waiting.emplace(step, call);
  }
  if (call->Release()) call->Resume(absl::OkStatus());
}

absl::StatusOr<std::vector<DataPlane::StepEnd>> DataPlane::StepEnds(const View& view,
                                                                    const EndStepRequest& request) const {
  std::vector<StepEnd> ends;
  if (request.partitions_size() != request.segments_size()) {
    return absl::InvalidArgumentError(absl::StrCat("segments has ", request.segments_size(), " entries for ",
                                                   request.partitions_size(), " partitions; each needs one"));
  }
  for (int i = 0; i < request.partitions_size(); ++i) {
    const uint32_t p = request.partitions(i);
    if (p >= view.partitions.size()) {
      return absl::OutOfRangeError(absl::StrCat("partition ", p, ": the job has ", view.partitions.size()));
    }
    if (view.partitions[p] == nullptr) return StaleRouting(view, absl::StrCat("partition ", p, " is elsewhere"));
    ends.push_back({view.partitions[p], request.segments(i)});
  }
  if (!ends.empty()) return ends;
  for (const auto& hosted : view.partitions) {
    if (hosted != nullptr) ends.push_back({hosted, std::nullopt});
  }
  return ends;
}

void DataPlane::EndStep(IncomingMessage message, Reply reply) {
  EndStepRequest request;
  if (absl::Status status = DecodeSmall(message.bytes, request); !status.ok()) {
    return Refuse(Method::kEndStep, nullptr, std::move(status), reply);
  }
  Sender sender;
  auto view = Admit(request.header(), sender);
  if (!view.ok()) return Refuse(Method::kEndStep, &request.header(), view.status(), reply);
  if (sender.kind != Sender::Kind::kLogicalWorker) {
    return Refuse(Method::kEndStep, &request.header(),
                  absl::InvalidArgumentError("header.logical_worker is not set: only a logical worker ends steps"), reply);
  }
  auto ends = StepEnds(**view, request);
  absl::Status status = ends.status();
  if (status.ok()) {
    for (const auto& [hosted, segments] : *ends) {
      MutexLock lock(hosted->mu);
      status = hosted->partition.CheckEndStep(sender, segments);
      if (!status.ok()) break;
    }
  }
  std::vector<std::shared_ptr<WaitingCall>> ready;
  EndStepResponse response;
  if (status.ok()) {
    for (const auto& [hosted, segments] : *ends) {
      MutexLock lock(hosted->mu);
      status = hosted->partition.EndStep(sender, segments);
      if (!status.ok()) break;
      hosted->TakeReady(ready);
      response.set_partitions(response.partitions() + 1);
    }
  }
  if (status.ok()) {
    reply(absl::OkStatus(), EncodeSmall(response));
  } else {
    Refuse(Method::kEndStep, &request.header(), std::move(status), reply);
  }
  for (const auto& call : ready) {
    if (call->Release()) call->Resume(absl::OkStatus());
  }
}

void DataPlane::ExpireWaitingCalls() {
  std::vector<std::shared_ptr<WaitingCall>> expired;
  const MonotonicTime now = clock_.Now();
  {
    MutexLock lock(waiting_mu_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const CallContext& context = (*it)->context();
      if (!(*it)->finished() && now < context.deadline && !context.IsCancelled()) {
        ++it;
        continue;
      }
      if (!(*it)->finished()) expired.push_back(std::move(*it));
      it = waiting_.erase(it);
    }
  }
  if (expired.empty()) return;
  for (const auto& call : expired) {
    call->Resume(absl::DeadlineExceededError("the step that the call waits for was not reached in time"));
  }
  const auto view = CurrentView();
  for (const auto& hosted : view->partitions) {
    if (hosted == nullptr) continue;
    MutexLock lock(hosted->mu);
    hosted->DropFinished();
  }
}

void DataPlane::Close(absl::Status status) {
  {
    MutexLock lock(routing_mu_);
    if (closed_.ok()) closed_ = status;
  }
  std::list<std::shared_ptr<WaitingCall>> waiting;
  {
    MutexLock lock(waiting_mu_);
    if (waiting_closed_.ok()) waiting_closed_ = status;
    waiting.swap(waiting_);
  }
  for (const auto& call : waiting) call->Resume(status);
}

ServerCounters DataPlane::Counters(bool may_be_old) {
  ServerCounters sum;
  const auto view = CurrentView();
  for (const auto& hosted : view->partitions) {
    if (hosted == nullptr) continue;
    PartitionFigures figures;
    if (!may_be_old) {
      MutexLock lock(hosted->mu);
      figures = hosted->Figures();
    } else if (hosted->mu.TryLock()) {
      figures = hosted->Figures();
      hosted->mu.Unlock();
      MutexLock lock(hosted->last_figures_mu);
      hosted->last_figures = figures;
    } else {
      MutexLock lock(hosted->last_figures_mu);
      figures = hosted->last_figures;
    }
    const PartitionCounters& counters = figures.counters;
    sum.set_pushes_applied(sum.pushes_applied() + counters.pushes_applied);
    sum.set_pushes_deduplicated(sum.pushes_deduplicated() + figures.pushes_deduplicated);
    sum.set_pushes_late(sum.pushes_late() + counters.pushes_late);
    sum.set_staleness_max(std::max(sum.staleness_max(), figures.staleness_max));
    sum.set_keys_pulled(sum.keys_pulled() + figures.keys_pulled);
    sum.set_keys_pushed(sum.keys_pushed() + counters.keys_pushed);
    sum.set_rows(sum.rows() + figures.rows);
    sum.set_parameter_bytes(sum.parameter_bytes() + figures.parameter_bytes);
  }
  sum.set_requests_refused(requests_refused_.load(std::memory_order_relaxed));
  MutexLock lock(waiting_mu_);
  for (const auto& call : waiting_) sum.set_parked_pulls(sum.parked_pulls() + !call->finished());
  return sum;
}

InspectResponse DataPlane::Inspect(bool digest) {
  InspectResponse response;
  *response.mutable_counters() = Counters(/*may_be_old=*/false);
  if (!digest) return response;
  const auto view = CurrentView();
  for (const auto& [id, table] : view->tables) {
    for (const auto& hosted : view->partitions) {
      if (hosted == nullptr) continue;
      MutexLock lock(hosted->mu);
      const TablePart& part = *hosted->partition.FindTable(id);
      PartitionDigest& entry = *response.add_digests();
      entry.set_table(id);
      entry.set_partition(hosted->partition.index());
      entry.set_crc32c(part.Digest());
      entry.set_rows(part.row_count());
    }
  }
  return response;
}

void DataPlane::KeepBest(uint64_t evaluation) {
  const auto view = CurrentView();
  for (const auto& hosted : view->partitions) {
    if (hosted == nullptr) continue;
    MutexLock lock(hosted->mu);
    hosted->partition.KeepBest(evaluation);
  }
}

void DataPlane::RestoreBest() {
  const auto view = CurrentView();
  for (const auto& hosted : view->partitions) {
    if (hosted == nullptr) continue;
    MutexLock lock(hosted->mu);
    hosted->partition.RestoreBest();
  }
}

}  // namespace pawl
