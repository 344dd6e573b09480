#include "client_lib/testing/fake_cluster.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/elements.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/table.h"

namespace pawl {
namespace {

constexpr uint64_t kJobId = 0x1234;

// The incarnation of the i-th registration.
std::string NodeName(size_t i) { return absl::StrCat("client-", i); }
uint64_t NodeIncarnation(size_t i) { return 7 + i; }

IncomingMessage Incoming(std::string bytes) {
  IncomingMessage message;
  auto memory = std::make_shared<std::string>(std::move(bytes));
  message.bytes.Append(memory->data(), memory->size());
  message.owner = std::move(memory);
  return message;
}

std::string Flat(const ByteView& view) {
  std::string bytes(view.size(), '\0');
  view.CopyTo(bytes.data());
  return bytes;
}

OutgoingMessage Serialize(const google::protobuf::MessageLite& message) {
  auto bytes = std::make_shared<std::string>(message.SerializeAsString());
  OutgoingMessage out;
  out.bytes.Append(bytes->data(), bytes->size());
  out.owner = std::move(bytes);
  return out;
}

template <typename T>
std::vector<T> Unpack(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

std::vector<float> UnpackElements(ElementType type, const std::string& bytes, int32_t exponent) {
  std::vector<float> values(bytes.size() / ElementBytes(type));
  DecodeElements(type, bytes.data(), values.size(), values.data(), exponent);
  return values;
}

template <typename T>
void Append(std::string& bytes, const std::vector<T>& values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Removes and returns the elements that `is_taken` accepts.
template <typename T, typename Predicate>
std::vector<T> TakeIf(std::vector<T>& all, Predicate is_taken) {
  const auto first = std::stable_partition(all.begin(), all.end(), std::not_fn(is_taken));
  std::vector<T> taken(std::make_move_iterator(first), std::make_move_iterator(all.end()));
  all.erase(first, all.end());
  return taken;
}

// The partition of each segment of a push or pull.
template <typename Request>
std::vector<uint32_t> PartitionsOf(const Request& request) {
  std::vector<uint32_t> partitions;
  for (const auto& segment : request.segments()) partitions.push_back(segment.partition());
  return partitions;
}

}  // namespace

uint64_t SenderNumber(const RequestHeader& header) {
  return header.sender_case() == RequestHeader::kClient ? 1000000u + header.client()
                                                        : header.logical_worker();
}

class FakeCluster::Server final : public RequestHandler {
 public:
  Server(FakeCluster& cluster, std::string name) : cluster_(cluster), name_(std::move(name)) {}
  void Handle(Method method, IncomingMessage request, CallContext context, Reply reply) override {
    cluster_.Handle(name_, method, request, std::move(reply));
  }

 private:
  FakeCluster& cluster_;
  const std::string name_;
};

class FakeCluster::Scheduler final : public ControlChannel {
 public:
  explicit Scheduler(FakeCluster& cluster) : cluster_(cluster), threads_(2) {}

  void Call(const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
            Transport::Done done) override {
    threads_.After(MonotonicDuration::zero(),
                   [this, method, bytes = Flat(request.bytes), done = std::move(done)]() mutable {
                     if (method == "/pawl.Scheduler/GetRouting" && HoldRouting(bytes, done)) return;
                     std::string answer;
                     const absl::Status status = Answer(method, bytes, &answer);
                     done(status, Incoming(std::move(answer)));
                   });
  }
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    threads_.After(delay, std::move(action));
  }
  void Shutdown() override {
    threads_.Hurry();
    std::vector<PendingRouting> pending;
    {
      MutexLock lock(cluster_.mu_);
      pending.swap(cluster_.pending_routing_);
    }
    for (PendingRouting& call : pending)
      call.done(absl::CancelledError("shut down"), IncomingMessage());
  }

 private:
  // Returns false if the request must be answered now.
  bool HoldRouting(const std::string& bytes, Transport::Done& done) {
    GetRoutingRequest request;
    MutexLock lock(cluster_.mu_);
    if (cluster_.scheduler_down_ || !request.ParseFromString(bytes)) return false;
    if (request.newer_than_epoch() == 0) return false;
    if (cluster_.announce_ && request.newer_than_epoch() < cluster_.routing_.epoch()) return false;
    cluster_.pending_routing_.push_back({request.newer_than_epoch(), std::move(done)});
    return true;
  }

  // OK for a node in its present incarnation.
  absl::Status CheckNode(const std::string& node, uint64_t incarnation) const
      PAWL_REQUIRES(cluster_.mu_) {
    for (size_t i = cluster_.first_known_; i < cluster_.registrations_.size(); ++i) {
      if (node == NodeName(i) && incarnation == NodeIncarnation(i)) return absl::OkStatus();
    }
    return absl::AbortedError("no such node");
  }

  absl::Status Answer(const std::string& method, const std::string& bytes, std::string* answer) {
    MutexLock lock(cluster_.mu_);
    if (cluster_.scheduler_down_) return absl::UnavailableError("the scheduler is down");
    if (method == "/pawl.Scheduler/Register") {
      RegisterRequest request;
      if (!request.ParseFromString(bytes)) return absl::InternalError("malformed");
      cluster_.registrations_.push_back(request);
      PAWL_RETURN_IF_ERROR(cluster_.registrations_refused_);
      const auto earlier = static_cast<uint32_t>(cluster_.registrations_.size() - 1);
      RegisterResponse response;
      response.set_node(NodeName(earlier));
      response.set_incarnation(NodeIncarnation(earlier));
      response.set_job_id(kJobId);
      response.mutable_job()->set_logical_workers(4);
      response.set_heartbeat_interval_ms(10);
      response.set_client(3 + earlier);
      response.mutable_job()->set_clip_global_norm(cluster_.clip_global_norm_);
      response.set_protocol(cluster_.protocol_);
      *answer = response.SerializeAsString();
    } else if (method == "/pawl.Scheduler/GetRouting") {
      *answer = cluster_.routing_.SerializeAsString();
    } else if (method == "/pawl.Scheduler/Heartbeat") {
      HeartbeatRequest request;
      if (!request.ParseFromString(bytes)) return absl::InternalError("malformed");
      PAWL_RETURN_IF_ERROR(CheckNode(request.node(), request.incarnation()));
      ++cluster_.heartbeats_;
      for (const UserMetric& metric : request.worker().metrics())
        cluster_.metrics_.push_back(metric);
      HeartbeatResponse response;
      // Does not announce newer routing, so that clients learn of it from servers only.
      response.set_job_state(cluster_.job_state_);
      response.set_failure(cluster_.failure_);
      *answer = response.SerializeAsString();
    } else if (method == "/pawl.Scheduler/CreateTable") {
      CreateTableRequest request;
      if (!request.ParseFromString(bytes)) return absl::InternalError("malformed");
      CreateTableResponse response;
      *response.mutable_table() = request.table();
      response.mutable_table()->set_id(static_cast<uint32_t>(cluster_.tables_.size()) + 1);
      cluster_.tables_.push_back(response.table());
      *answer = response.SerializeAsString();
    } else if (method == "/pawl.Scheduler/ListTables") {
      ListTablesResponse response;
      for (const TableSpec& table : cluster_.tables_) *response.add_tables() = table;
      *answer = response.SerializeAsString();
    } else if (method == "/pawl.Scheduler/Barrier") {
      BarrierRequest request;
      if (!request.ParseFromString(bytes)) return absl::InternalError("malformed");
      PAWL_RETURN_IF_ERROR(CheckNode(request.node(), request.incarnation()));
    } else if (method == "/pawl.Scheduler/Goodbye") {
      cluster_.goodbye_ = true;
    }
    return absl::OkStatus();
  }

  FakeCluster& cluster_;
  ActionThreads threads_;
};

FakeCluster::FakeCluster(int servers, uint32_t partitions) {
  routing_.set_job_id(kJobId);
  routing_.set_epoch(1);
  for (int i = 0; i < servers; ++i) {
    ServerAddress& address = *routing_.add_servers();
    address.set_node(absl::StrCat("server-", i));
    address.set_address(absl::StrCat("server-", i));
    servers_.push_back(std::make_unique<Server>(*this, address.address()));
  }
  for (uint32_t p = 0; p < partitions; ++p) routing_.add_primary(p % servers);
  control_ = std::make_shared<Scheduler>(*this);
  transport_ = std::make_shared<InProcessTransport>();
  for (int i = 0; i < servers; ++i)
    transport_->SetHandler(absl::StrCat("server-", i), servers_[i].get());
}

FakeCluster::~FakeCluster() {
  transport_->Shutdown();
  control_->Shutdown();
}

std::shared_ptr<ControlChannel> FakeCluster::control() { return control_; }

void FakeCluster::SetIntercept(Intercept intercept) {
  MutexLock lock(mu_);
  intercept_ = std::move(intercept);
}

void FakeCluster::Hold(Method method) {
  MutexLock lock(mu_);
  holding_.insert(method);
}

void FakeCluster::Release(Method method) {
  std::vector<Held> ready;
  {
    MutexLock lock(mu_);
    holding_.erase(method);
    ready = TakeIf(
        held_, [method](const Held& held) { return held.method == method && !held.awaits_all; });
  }
  for (Held& held : ready) held.answer();
}

size_t FakeCluster::held(Method method) const {
  MutexLock lock(mu_);
  return absl::c_count_if(
      held_, [method](const Held& held) { return held.method == method && !held.awaits_all; });
}

size_t FakeCluster::max_bytes_held() const {
  MutexLock lock(mu_);
  return max_bytes_held_;
}

void FakeCluster::MovePartitions(uint32_t shift) {
  std::vector<PendingRouting> pending;
  {
    MutexLock lock(mu_);
    routing_.set_epoch(routing_.epoch() + 1);
    for (int p = 0; p < routing_.primary_size(); ++p) {
      routing_.set_primary(p, (p + shift) % static_cast<uint32_t>(routing_.servers_size()));
    }
    pending = TakePendingRouting();
  }
  AnswerRouting(std::move(pending));
}

void FakeCluster::SetPrimary(uint32_t partition, std::optional<uint32_t> server) {
  std::vector<PendingRouting> pending;
  {
    MutexLock lock(mu_);
    routing_.set_epoch(routing_.epoch() + 1);
    routing_.set_primary(static_cast<int>(partition), server.value_or(UINT32_MAX));
    pending = TakePendingRouting();
  }
  AnswerRouting(std::move(pending));
}

void FakeCluster::AnnounceRouting() {
  std::vector<PendingRouting> pending;
  {
    MutexLock lock(mu_);
    announce_ = true;
    pending = TakePendingRouting();
  }
  AnswerRouting(std::move(pending));
}

std::vector<FakeCluster::PendingRouting> FakeCluster::TakePendingRouting() {
  if (!announce_ || scheduler_down_) return {};
  return TakeIf(pending_routing_, [epoch = routing_.epoch()](const PendingRouting& call) {
    return call.newer_than < epoch;
  });
}

void FakeCluster::AnswerRouting(std::vector<PendingRouting> pending) {
  const std::string table = routing().SerializeAsString();
  for (PendingRouting& call : pending) {
    auto done = std::make_shared<Transport::Done>(std::move(call.done));
    control_->After(MonotonicDuration::zero(),
                    [done, table] { (*done)(absl::OkStatus(), Incoming(table)); });
  }
}

void FakeCluster::OmitRoutingFromRefusals() {
  MutexLock lock(mu_);
  brief_ = true;
}

void FakeCluster::SetSchedulerDown(bool down) {
  std::vector<PendingRouting> pending;
  {
    MutexLock lock(mu_);
    scheduler_down_ = down;
    if (down) pending.swap(pending_routing_);
  }
  for (PendingRouting& call : pending) {
    auto done = std::make_shared<Transport::Done>(std::move(call.done));
    control_->After(MonotonicDuration::zero(), [done] {
      (*done)(absl::UnavailableError("the scheduler is down"), IncomingMessage());
    });
  }
}

void FakeCluster::ForgetNodes() {
  MutexLock lock(mu_);
  first_known_ = registrations_.size();
}

void FakeCluster::SetClock(uint32_t rank, uint32_t partition, uint64_t clock) {
  MutexLock lock(mu_);
  clocks_[{rank, partition}] = clock;
}

uint64_t FakeCluster::Clock(uint32_t rank, uint32_t partition) const {
  MutexLock lock(mu_);
  const auto it = clocks_.find({rank, partition});
  return it == clocks_.end() ? 0 : it->second;
}

std::vector<RegisterRequest> FakeCluster::registrations() const {
  MutexLock lock(mu_);
  return registrations_;
}

RoutingTable FakeCluster::routing() const {
  MutexLock lock(mu_);
  return routing_;
}

void FakeCluster::RefuseRegistrations(absl::Status refusal) {
  MutexLock lock(mu_);
  registrations_refused_ = std::move(refusal);
}

void FakeCluster::SetProtocol(uint32_t protocol) {
  MutexLock lock(mu_);
  protocol_ = protocol;
}

void FakeCluster::SetClipGlobalNorm(float clip_global_norm, std::vector<double> squares) {
  MutexLock lock(mu_);
  clip_global_norm_ = clip_global_norm;
  squares_ = std::move(squares);
  holds_awaits_ = true;
}

void FakeCluster::ReleaseAwaits() {
  std::vector<Held> ready;
  {
    MutexLock lock(mu_);
    holds_awaits_ = false;
    ready = TakeIf(held_, [](const Held& held) { return held.awaits_all; });
  }
  for (Held& held : ready) held.answer();
}

size_t FakeCluster::held_awaits() const {
  MutexLock lock(mu_);
  return absl::c_count_if(held_, [](const Held& held) { return held.awaits_all; });
}

void FakeCluster::FailJob(const std::string& failure) {
  MutexLock lock(mu_);
  job_state_ = FAILED;
  failure_ = failure;
}

std::vector<FakeCluster::Event> FakeCluster::events() const {
  MutexLock lock(mu_);
  return events_;
}

std::vector<float> FakeCluster::Slots(uint32_t table, uint64_t key) const {
  MutexLock lock(mu_);
  const auto it = slots_.find({table, key});
  return it == slots_.end() ? std::vector<float>() : it->second;
}

std::vector<float> FakeCluster::Row(uint32_t table, uint64_t key) const {
  MutexLock lock(mu_);
  const auto it = rows_.find({table, key});
  return it == rows_.end() ? std::vector<float>() : it->second;
}

std::set<uint64_t> FakeCluster::Ordinals(uint64_t sender, uint64_t step, uint32_t partition) const {
  MutexLock lock(mu_);
  const auto it = taken_.find({sender, step, partition});
  return it == taken_.end() ? std::set<uint64_t>() : it->second;
}

std::vector<UserMetric> FakeCluster::metrics() const {
  MutexLock lock(mu_);
  return metrics_;
}

uint64_t FakeCluster::heartbeats() const {
  MutexLock lock(mu_);
  return heartbeats_;
}

bool FakeCluster::said_goodbye() const {
  MutexLock lock(mu_);
  return goodbye_;
}

uint64_t FakeCluster::RowWidth(uint32_t table, uint64_t key) const {
  const TableSpec& spec = tables_[table - 1];
  if (spec.kind() == SPARSE) return spec.row_width();
  uint64_t elements = 1;
  for (const uint64_t extent : spec.shape()) elements *= extent;
  return BlockElements(elements, key);
}

uint64_t FakeCluster::SlotFloats(uint32_t table, uint64_t key) const {
  return Table(tables_[table - 1]).SlotFloats(RowWidth(table, key));
}

std::vector<float> FakeCluster::SlotsOrZeros(uint32_t table, uint64_t key) const {
  const auto it = slots_.find({table, key});
  return it != slots_.end() ? it->second : std::vector<float>(SlotFloats(table, key));
}

absl::Status FakeCluster::CheckHeader(const std::string& server, const RequestHeader& header,
                                      const std::vector<uint32_t>& partitions) const {
  if (header.job_id() != kJobId) return absl::UnavailableError("another job");
  bool elsewhere = header.epoch() != routing_.epoch();
  for (const uint32_t p : partitions) {
    const uint32_t primary = routing_.primary(static_cast<int>(p));
    elsewhere |=
        primary == UINT32_MAX || routing_.servers(static_cast<int>(primary)).address() != server;
  }
  if (elsewhere) {
    RoutingTable table = routing_;
    if (brief_) {
      table.clear_servers();
      table.clear_primary();
    }
    absl::Status status = absl::FailedPreconditionError("elsewhere");
    status.SetPayload(kRoutingPayloadUrl, absl::Cord(table.SerializeAsString()));
    return status;
  }
  for (const uint32_t p : partitions) {
    PAWL_RETURN_IF_ERROR(CheckIncarnation(header, p));
  }
  return absl::OkStatus();
}

absl::Status FakeCluster::CheckIncarnation(const RequestHeader& header, uint32_t partition) const {
  if (header.sender_case() != RequestHeader::kLogicalWorker) return absl::OkStatus();
  const auto it = incarnations_.find({header.logical_worker(), partition});
  if (it == incarnations_.end() || it->second <= header.incarnation()) return absl::OkStatus();
  return absl::AbortedError("superseded");
}

absl::StatusOr<FakeCluster::Event::Segment> FakeCluster::Apply(const RequestHeader& header,
                                                               const PushSegment& segment) {
  Event::Segment seen{segment.table(),
                      segment.partition(),
                      segment.ordinal(),
                      Unpack<uint64_t>(segment.keys()),
                      UnpackElements(segment.element_type(), segment.values(), segment.exponent()),
                      false,
                      segment.element_type(),
                      segment.values().size(),
                      segment.effect()};
  const std::vector<float> slots = Unpack<float>(segment.slots());
  std::set<uint64_t>& taken = taken_[{SenderNumber(header), header.step(), segment.partition()}];
  seen.duplicate = !taken.insert(segment.ordinal()).second;
  if (seen.effect == SET_LEARNING_RATES) return seen;
  size_t at = 0;
  size_t slots_at = 0;
  for (const uint64_t key : seen.keys) {
    if (PartitionOf(segment.table(), key, static_cast<uint32_t>(routing_.primary_size())) !=
        segment.partition())
      return absl::InvalidArgumentError("a key of another partition");
    const uint64_t width = RowWidth(segment.table(), key);
    std::vector<float>& row = rows_[{segment.table(), key}];
    row.resize(width);
    if (seen.effect != APPLY_GRADIENT && !seen.duplicate) row.assign(width, 0.0f);
    if (seen.effect == ASSIGN_WITH_SLOTS) {
      const size_t count = SlotFloats(segment.table(), key);
      if (slots_at + count > slots.size()) return absl::InvalidArgumentError("slots");
      if (!seen.duplicate) {
        slots_[{segment.table(), key}].assign(slots.data() + slots_at,
                                              slots.data() + slots_at + count);
      }
      slots_at += count;
    }
    for (uint64_t i = 0; i < width && !seen.duplicate; ++i) row[i] += seen.values[at + i];
    at += width;
  }
  if (at != seen.values.size() || slots_at != slots.size())
    return absl::InvalidArgumentError("lengths");
  return seen;
}

absl::StatusOr<PushResponse> FakeCluster::Push(const PushRequest& push, Event& event) {
  PAWL_RETURN_IF_ERROR(CheckHeader(event.server, push.header(), PartitionsOf(push)));
  PushResponse response;
  for (const PushSegment& segment : push.segments()) {
    PAWL_ASSIGN_OR_RETURN(Event::Segment seen, Apply(push.header(), segment));
    seen.duplicate ? response.set_deduplicated(response.deduplicated() + 1)
                   : response.set_accepted(response.accepted() + 1);
    event.segments.push_back(std::move(seen));
  }
  return response;
}

absl::StatusOr<PullResponse> FakeCluster::Pull(const PullRequest& pull, Event& event) {
  PAWL_RETURN_IF_ERROR(CheckHeader(event.server, pull.header(), PartitionsOf(pull)));
  PullResponse response;
  for (const PullSegment& segment : pull.segments()) {
    PullResult& result = *response.add_results();
    Event::Segment seen{
        segment.table(), segment.partition(), 0, Unpack<uint64_t>(segment.keys()), {}, false};
    for (const uint64_t key : seen.keys) {
      const auto row = rows_.find({segment.table(), key});
      Append(*result.mutable_values(),
             row != rows_.end() ? row->second : std::vector<float>(RowWidth(segment.table(), key)));
      if (segment.with_slots()) Append(*result.mutable_slots(), SlotsOrZeros(segment.table(), key));
    }
    seen.value_bytes = result.values().size();
    event.segments.push_back(std::move(seen));
  }
  return response;
}

absl::StatusOr<ScanResponse> FakeCluster::Scan(const ScanRequest& scan, Event& event) {
  event.partitions = {scan.partition()};
  PAWL_RETURN_IF_ERROR(CheckHeader(event.server, scan.header(), event.partitions));
  ScanResponse page;
  page.set_done(true);
  for (auto it = rows_.lower_bound({scan.table(), scan.first_key()});
       it != rows_.end() && it->first.first == scan.table(); ++it) {
    const uint64_t key = it->first.second;
    if (PartitionOf(scan.table(), key, static_cast<uint32_t>(routing_.primary_size())) !=
        scan.partition())
      continue;
    if (page.keys().size() == scan.max_rows() * sizeof(uint64_t)) {
      page.set_done(false);
      page.set_next_key(key);
      break;
    }
    Append(*page.mutable_keys(), std::vector<uint64_t>{key});
    Append(*page.mutable_values(), it->second);
    if (scan.with_slots()) Append(*page.mutable_slots(), SlotsOrZeros(scan.table(), key));
  }
  return page;
}

absl::StatusOr<TakeOverResponse> FakeCluster::TakeOver(const TakeOverRequest& take, Event& event) {
  event.partitions.assign(take.partitions().begin(), take.partitions().end());
  PAWL_RETURN_IF_ERROR(CheckHeader(event.server, take.header(), event.partitions));
  TakeOverResponse response;
  for (const uint32_t p : event.partitions) {
    incarnations_[{take.header().logical_worker(), p}] = take.header().incarnation();
    response.add_clocks(clocks_[{take.header().logical_worker(), p}]);
  }
  return response;
}

absl::StatusOr<EndStepResponse> FakeCluster::EndStep(const EndStepRequest& end, Event& event) {
  event.partitions.assign(end.partitions().begin(), end.partitions().end());
  event.segment_counts.assign(end.segments().begin(), end.segments().end());
  event.phase = end.phase();
  event.scale = end.scale();
  PAWL_RETURN_IF_ERROR(CheckHeader(event.server, end.header(), event.partitions));
  const uint32_t rank = end.header().logical_worker();
  const uint64_t step = end.header().step();
  for (size_t i = 0; i < event.partitions.size() && !event.segment_counts.empty(); ++i) {
    const auto it = taken_.find({rank, step, event.partitions[i]});
    const uint64_t there = it == taken_.end() ? 0 : it->second.size();
    if (there != event.segment_counts[i])
      return absl::FailedPreconditionError("segments are missing");
  }
  EndStepResponse response;
  for (const uint32_t p : event.partitions) {
    uint64_t& clock = clocks_[{rank, p}];
    if (event.phase == EndStepRequest::END) {
      clock = std::max(clock, step + 1);
    } else if (clock <= step) {
      return absl::FailedPreconditionError("the rank has not ended the step");
    }
    if (event.phase == EndStepRequest::AWAIT_ALL) response.add_squares(squares_[p]);
  }
  return response;
}

template <typename Request, typename Response>
absl::StatusOr<OutgoingMessage> FakeCluster::AnswerWith(
    absl::StatusOr<Response> (FakeCluster::*handler)(const Request&, Event&),
    const std::string& bytes, Event& event) {
  Request request;
  if (!request.ParseFromString(bytes)) return absl::InvalidArgumentError("malformed");
  event.header = request.header();
  PAWL_ASSIGN_OR_RETURN(const Response response, (this->*handler)(request, event));
  return Serialize(response);
}

absl::StatusOr<OutgoingMessage> FakeCluster::Answer(const std::string& bytes, Event& event) {
  switch (event.method) {
    case Method::kPush:
      return AnswerWith(&FakeCluster::Push, bytes, event);
    case Method::kPull:
      return AnswerWith(&FakeCluster::Pull, bytes, event);
    case Method::kScan:
      return AnswerWith(&FakeCluster::Scan, bytes, event);
    case Method::kTakeOver:
      return AnswerWith(&FakeCluster::TakeOver, bytes, event);
    default:
      return AnswerWith(&FakeCluster::EndStep, bytes, event);
  }
}

void FakeCluster::Handle(const std::string& server, Method method, const IncomingMessage& request,
                         RequestHandler::Reply reply) {
  Intercept intercept;
  {
    MutexLock lock(mu_);
    intercept = intercept_;
  }
  absl::Status intercepted;
  if (intercept) intercepted = intercept(server, method);
  if (!intercepted.ok()) return reply(std::move(intercepted), OutgoingMessage());

  Event event;
  event.server = server;
  event.method = method;
  absl::StatusOr<OutgoingMessage> answer;
  {
    MutexLock lock(mu_);
    answer = Answer(Flat(request.bytes), event);
    if (answer.ok()) {
      Held held{.method = method,
                .awaits_all = holds_awaits_ && event.phase == EndStepRequest::AWAIT_ALL};
      for (const Event::Segment& segment : event.segments) held.bytes += segment.value_bytes;
      events_.push_back(std::move(event));
      if (held.awaits_all || holding_.contains(method)) {
        held.answer = [reply = std::move(reply), answer = *std::move(answer)]() mutable {
          reply(absl::OkStatus(), std::move(answer));
        };
        held_.push_back(std::move(held));
        size_t bytes_held = 0;
        for (const Held& each : held_) bytes_held += each.bytes;
        max_bytes_held_ = std::max(max_bytes_held_, bytes_held);
        return;
      }
    }
  }
  // Moved, not copied: ThreadSanitizer does not see the reference counting in libabsl.
  if (!answer.ok()) return reply(std::move(answer).status(), OutgoingMessage());
  reply(absl::OkStatus(), *std::move(answer));
}

}  // namespace pawl
