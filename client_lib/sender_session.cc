#include "client_lib/sender_session.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/messenger.h"
#include "client_lib/segments.h"

namespace pawl {
namespace {

// The widest row (proto/types.proto).
constexpr uint64_t kMaxRowWidth = 4096;

// `floats` is the length of the item's gradients or values, `field` its name.
absl::Status CheckItem(size_t index, const Table& table, absl::Span<const uint64_t> keys, size_t floats,
                       absl::string_view field) {
  if (!table) {
    return absl::InvalidArgumentError(
        absl::StrCat("items[", index, "].table is of no table; take one from CreateTable or OpenTable"));
  }
  const std::string where = absl::StrCat("items[", index, "] for table `", table.name(), "`: ");
  if (table.dense()) {
    if (!keys.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, keys.size(), " keys given; a dense table takes none, the whole tensor is meant"));
    }
    if (floats != table.elements()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, field, " has ", floats, " floats; the tensor has ", table.elements()));
    }
    return absl::OkStatus();
  }
  if (table.row_width() == 0 || table.row_width() > kMaxRowWidth) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "row_width is ", table.row_width(), "; it must be 1 to ", kMaxRowWidth));
  }
  if (keys.size() > kMaxKeysInItem) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, keys.size(), " keys; the limit is ", kMaxKeysInItem, "; make several calls"));
  }
  if (floats != keys.size() * table.row_width()) {
    return absl::InvalidArgumentError(absl::StrCat(where, field, " has ", floats, " floats; ", keys.size(),
                                                   " keys of width ", table.row_width(), " take ",
                                                   keys.size() * table.row_width()));
  }
  return absl::OkStatus();
}

// Some blocks of a dense table.
absl::Status CheckBlocks(size_t index, const Table& table, absl::Span<const uint64_t> blocks, size_t floats) {
  const std::string where = absl::StrCat("items[", index, "] for table `", table.name(), "`: ");
  size_t elements = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] >= BlockCount(table)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "the tensor has ", BlockCount(table), " blocks; there is no block ", blocks[i]));
    }
    if (i > 0 && blocks[i] <= blocks[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat(where, "blocks must ascend; ", blocks[i], " follows ", blocks[i - 1]));
    }
    elements += BlockElements(table, blocks[i]);
  }
  if (floats == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, "gradients has ", floats, " floats; the blocks have ", elements));
}

absl::Status CheckCount(size_t items) {
  if (items <= kMaxItemsInCall) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(items, " items in one call; the limit is ", kMaxItemsInCall, "; make several calls"));
}

absl::Status CheckItems(absl::Span<const PushItem> items) {
  PAWL_RETURN_IF_ERROR(CheckCount(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    const PushItem& item = items[i];
    if (item.table && item.table.dense() && !item.keys.empty()) {
      PAWL_RETURN_IF_ERROR(CheckBlocks(i, item.table, item.keys, item.gradients.size()));
    } else {
      PAWL_RETURN_IF_ERROR(CheckItem(i, item.table, item.keys, item.gradients.size(), "gradients"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckItems(absl::Span<const PullItem> items) {
  PAWL_RETURN_IF_ERROR(CheckCount(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    PAWL_RETURN_IF_ERROR(CheckItem(i, items[i].table, items[i].keys, items[i].values.size(), "values"));
  }
  return absl::OkStatus();
}

absl::Status TooManyWait() {
  return absl::ResourceExhaustedError(absl::StrCat(
      kMaxWaitingCalls, " calls of this session wait for their turn, which is the limit; wait for some of them first"));
}

absl::Status NoTurn() {
  return absl::DeadlineExceededError("the call's turn in its session did not come before its deadline");
}

// Fills one message for each server and sends it when it is full.
class Outbox {
 public:
  Outbox(Messenger& messenger, std::shared_ptr<Call> call, std::shared_ptr<const Routing> routing)
      : messenger_(messenger), call_(std::move(call)), routing_(std::move(routing)), open_(routing_->servers() + 1) {}

  // A segment for the caller to fill in, before the next call.
  Segment& Add(uint32_t partition, size_t bytes) {
    std::shared_ptr<Messenger::Message>& message = open_[std::min(routing_->primary(partition), routing_->servers())];
    if (message != nullptr && (message->bytes + bytes > kMessageBytes || message->segments.size() == kMessageSegments)) {
      Flush(message);
    }
    if (message == nullptr) {
      message = std::make_shared<Messenger::Message>();
      message->call = call_;
    }
    message->bytes += bytes;
    Segment& segment = message->segments.emplace_back();
    segment.partition = partition;
    segment.bytes = bytes;
    return segment;
  }

  // Sends what is left; the call may be done after this.
  void Close() {
    for (std::shared_ptr<Messenger::Message>& message : open_) {
      if (message != nullptr) Flush(message);
    }
    call_->MessageDone(absl::OkStatus());
  }

 private:
  void Flush(std::shared_ptr<Messenger::Message>& message) {
    call_->AddMessages(1);
    messenger_.Send(std::exchange(message, nullptr));
  }

  Messenger& messenger_;
  const std::shared_ptr<Call> call_;
  const std::shared_ptr<const Routing> routing_;
  std::vector<std::shared_ptr<Messenger::Message>> open_;  // by server; the last is for partitions without a primary
};

}  // namespace

class SenderSession::PushCall final : public Call, public std::enable_shared_from_this<PushCall> {
 public:
  PushCall(std::shared_ptr<SenderSession> session, absl::Span<const PushItem> items, uint64_t step, MonotonicTime deadline,
           Callback done)
      // In SYNC it waits at the server until the step before has closed.
      : Call(Method::kPush, session->Header(step), deadline, step,
             session->identity_.rank.has_value() && session->core_->is_sync()),
        session_(std::move(session)),
        items_(items.begin(), items.end()),
        done_(std::move(done)) {
    for (const PushItem& item : items_) {
      bytes_ += item.gradients.size() * sizeof(float) + item.keys.size() * sizeof(uint64_t);
    }
  }

  size_t bytes() const { return bytes_; }
  void set_granted() { granted_ = true; }
  void set_ahead(std::list<Ahead>::iterator ahead) { ahead_ = ahead; }

  // Cuts all items; the most segments that a partition gets.
  uint64_t CutItems(uint32_t partitions) {
    if (!cuts_.empty() || items_.empty()) return max_segments_of_partition_;
    std::vector<uint32_t> segments(partitions);
    for (const PushItem& item : items_) {
      cuts_.push_back(session_->core_->cuts_pool().Get());
      TableCuts& cuts = *cuts_.back();
      if (item.table.dense()) {
        cuts.BuildDense(item.table, partitions, item.keys);
      } else {
        cuts.BuildSparse(item.table, item.keys, partitions, item.keys_are_distinct);
        cuts.AllocateRows(item.table);
      }
      for (const KeyRange& cut : cuts.cuts()) {
        max_segments_of_partition_ = std::max<uint64_t>(max_segments_of_partition_, ++segments[cut.partition]);
      }
    }
    return max_segments_of_partition_;
  }

  // Numbers the segments and sends them; gathering the rows of one message while the one before is on its way.
  void SendSegments(std::vector<uint64_t>& next_ordinal) {
    Outbox outbox(session_->core_->messenger(), shared_from_this(), session_->core_->router().current());
    for (size_t i = 0; i < items_.size(); ++i) {
      const PushItem& item = items_[i];
      TableCuts& cuts = *cuts_[i];
      for (const KeyRange& cut : cuts.cuts()) {
        Segment& segment = outbox.Add(cut.partition, cut.count * sizeof(uint64_t) + cuts.ValueBytes(item.table, cut));
        segment.table = item.table.id();
        segment.ordinal = next_ordinal[cut.partition]++;
        cuts.AppendKeys(cut, &segment.keys);
        if (item.table.dense()) {
          cuts.AppendBlocks(item.table, cut, item.gradients.data(), &segment.values);
        } else {
          cuts.GatherRows(item.table, cut, item.gradients.data(), &segment.values);
        }
      }
    }
    outbox.Close();
  }

  absl::Status TakeAnswer(absl::Span<const Segment> segments, const PullResponseView& answer) override {
    return absl::InternalError("the answer to a push has no values");
  }

  void Finish(const absl::Status& status) override {
    for (std::unique_ptr<TableCuts>& cuts : cuts_) session_->core_->cuts_pool().Put(std::move(cuts));
    cuts_.clear();
    if (granted_) session_->core_->push_flow().Release(flow_step, bytes_);
    session_->OnPushDone(ahead_, status);
    done_(status);
    done_ = nullptr;
    session_->Pump();
  }

 private:
  const std::shared_ptr<SenderSession> session_;
  const std::vector<PushItem> items_;
  Callback done_;
  size_t bytes_ = 0;
  bool granted_ = false;
  std::optional<std::list<Ahead>::iterator> ahead_;
  std::vector<std::unique_ptr<TableCuts>> cuts_;  // by item
  uint64_t max_segments_of_partition_ = 0;
};

class SenderSession::PullCall final : public Call, public std::enable_shared_from_this<PullCall> {
 public:
  PullCall(std::shared_ptr<SenderSession> session, absl::Span<const PullItem> items, uint64_t step, MonotonicTime deadline,
           Callback done)
      : Call(Method::kPull, session->Header(step), deadline, step, session->identity_.rank.has_value()),
        session_(std::move(session)),
        items_(items.begin(), items.end()),
        done_(std::move(done)) {
    for (const PullItem& item : items_) {
      bytes_ += item.values.size() * sizeof(float) + item.keys.size() * sizeof(uint64_t);
    }
  }

  size_t bytes() const { return bytes_; }
  void set_granted() { granted_ = true; }

  void SendSegments() {
    const std::shared_ptr<const Routing> routing = session_->core_->router().current();
    // All cuts before the first message: answers are taken while later ones are being sent.
    for (const PullItem& item : items_) {
      cuts_.push_back(session_->core_->cuts_pool().Get());
      if (item.table.dense()) {
        cuts_.back()->BuildDense(item.table, routing->partitions());
      } else {
        cuts_.back()->BuildSparse(item.table, item.keys, routing->partitions(), item.keys_are_distinct);
      }
    }
    Outbox outbox(session_->core_->messenger(), shared_from_this(), routing);
    for (size_t i = 0; i < items_.size(); ++i) {
      const Table& table = items_[i].table;
      const absl::Span<const KeyRange> cuts = cuts_[i]->cuts();
      for (size_t j = 0; j < cuts.size(); ++j) {
        Segment& segment =
            outbox.Add(cuts[j].partition, cuts[j].count * sizeof(uint64_t) + cuts_[i]->ValueBytes(table, cuts[j]));
        segment.table = table.id();
        cuts_[i]->AppendKeys(cuts[j], &segment.keys);
        segment.item = static_cast<uint32_t>(i);
        segment.cut = static_cast<uint32_t>(j);
      }
    }
    outbox.Close();
  }

  absl::Status TakeAnswer(absl::Span<const Segment> segments, const PullResponseView& answer) override {
    for (size_t i = 0; i < segments.size(); ++i) {
      const PullItem& item = items_[segments[i].item];
      const TableCuts& cuts = *cuts_[segments[i].item];
      const KeyRange& cut = cuts.cuts()[segments[i].cut];
      if (answer.results[i].size() != cuts.ValueBytes(item.table, cut)) {
        return absl::InternalError(absl::StrCat("the server answered ", answer.results[i].size(), " bytes for ", cut.count,
                                                " keys of table `", item.table.name(), "`, which have ",
                                                cuts.ValueBytes(item.table, cut)));
      }
      cuts.Scatter(item.table, cut, answer.results[i], item.values.data());
    }
    return absl::OkStatus();
  }

  void Finish(const absl::Status& status) override {
    for (std::unique_ptr<TableCuts>& cuts : cuts_) session_->core_->cuts_pool().Put(std::move(cuts));
    cuts_.clear();
    if (granted_) session_->core_->pull_flow().Release(flow_step, bytes_);
    done_(status);
    done_ = nullptr;
  }

 private:
  const std::shared_ptr<SenderSession> session_;
  const std::vector<PullItem> items_;
  Callback done_;
  size_t bytes_ = 0;
  bool granted_ = false;
  std::vector<std::unique_ptr<TableCuts>> cuts_;  // by item
};

SenderSession::SenderSession(std::shared_ptr<ClientCore> core, const Identity& identity)
    : core_(std::move(core)),
      identity_(identity),
      next_ordinal_(core_->router().current()->partitions()),
      ordinals_of_step_(identity.first_step),
      step_(identity.first_step),
      active_step_(identity.first_step) {}

RequestHeader SenderSession::Header(uint64_t step) const {
  RequestHeader header;
  header.set_job_id(core_->registration().job_id());
  header.set_incarnation(identity_.incarnation != 0 ? identity_.incarnation : core_->registration().incarnation());
  if (identity_.rank) {
    header.set_logical_worker(*identity_.rank);
    header.set_step(step);
  } else if (identity_.client) {
    header.set_client(*identity_.client);
  }
  return header;
}

uint64_t SenderSession::step() const {
  MutexLock lock(mu_);
  return step_;
}

void SenderSession::Push(absl::Span<const PushItem> items, const CallOptions& options, Callback user_done) {
  Callback done = core_->Count(std::move(user_done));
  absl::Status refused = CheckItems(items);
  if (refused.ok() && !identity_.rank && !identity_.client) {
    refused = absl::FailedPreconditionError(
        "a WORKER_ROLE client has no free-running pushes; push through OpenLogicalWorker, or connect with CLIENT_ROLE");
  }
  uint64_t id = 0;
  if (refused.ok()) {
    MutexLock lock(mu_);
    if (!broken_.ok()) {
      refused = broken_;
    } else if (operations_.size() >= kMaxWaitingCalls) {
      refused = TooManyWait();
    } else {
      Operation operation;
      operation.step = step_;
      operation.deadline = core_->Deadline(options);
      operation.push = std::make_shared<PushCall>(shared_from_this(), items, step_, operation.deadline, std::move(done));
      operation.id = id = next_id_++;
      operations_.push_back(std::move(operation));
    }
  }
  if (!refused.ok()) {
    done(refused);
    return;
  }
  Pump();
  WatchDeadline(id);
}

void SenderSession::EndStep(const CallOptions& options, Callback user_done) {
  Callback done = core_->Count(std::move(user_done));
  absl::Status refused;
  uint64_t id = 0;
  if (!identity_.rank) {
    refused = absl::FailedPreconditionError("a free-running client has no steps; use OpenLogicalWorker");
  } else {
    MutexLock lock(mu_);
    if (!broken_.ok()) {
      refused = broken_;
    } else if (operations_.size() >= kMaxWaitingCalls) {
      refused = TooManyWait();
    } else {
      Operation operation;
      operation.step = step_++;
      operation.deadline = core_->Deadline(options);
      operation.done = std::move(done);
      operation.id = id = next_id_++;
      operations_.push_back(std::move(operation));
    }
  }
  if (!refused.ok()) {
    done(refused);
    return;
  }
  Pump();
  WatchDeadline(id);
}

void SenderSession::Pull(absl::Span<const PullItem> items, const CallOptions& options, Callback user_done) {
  Callback done = core_->Count(std::move(user_done));
  absl::Status refused = CheckItems(items);
  std::shared_ptr<PullCall> pull;
  if (refused.ok()) {
    MutexLock lock(mu_);
    const bool waits = identity_.rank && !options.step && step_ > active_step_;
    if (!broken_.ok()) {
      refused = broken_;
    } else if (waits && waiting_pulls_.size() >= kMaxWaitingCalls) {
      refused = TooManyWait();
    } else {
      const uint64_t step = identity_.rank ? options.step.value_or(step_) : 0;
      pull = std::make_shared<PullCall>(shared_from_this(), items, step, core_->Deadline(options), std::move(done));
      if (waits) {
        const uint64_t id = next_id_++;
        const DeadlineQueue::Id timer =
            core_->deadlines().Add(pull->deadline, [self = shared_from_this(), id] { self->ExpirePull(id); });
        waiting_pulls_.push_back({std::move(pull), id, timer});
        return;
      }
    }
  }
  if (!refused.ok()) {
    done(refused);
    return;
  }
  StartPull(std::move(pull));
}

void SenderSession::PushPull(absl::Span<const PushItem> pushes, absl::Span<const PullItem> pulls, const CallOptions& options,
                             Callback done) {
  const MonotonicTime deadline = core_->Deadline(options);
  CallOptions pull_options;
  if (identity_.rank) pull_options.step = step();
  Push(pushes, options,
       [this, pulls = std::vector<PullItem>(pulls.begin(), pulls.end()), deadline, pull_options,
        done = std::move(done)](absl::Status status) mutable {
         if (!status.ok()) {
           done(std::move(status));
           return;
         }
         pull_options.timeout = deadline - core_->clock().Now();
         Pull(pulls, pull_options, std::move(done));
       });
}

void SenderSession::StartPull(std::shared_ptr<PullCall> pull) {
  const bool granted =
      core_->pull_flow().Acquire(pull->flow_step, pull->bytes(), pull->deadline, [pull](const absl::Status& status) {
        if (status.ok()) {
          pull->set_granted();
          pull->SendSegments();
        } else {
          pull->MessageDone(status);
        }
      });
  if (!granted) return;
  pull->set_granted();
  pull->SendSegments();
}

void SenderSession::Pump() {
  {
    MutexLock lock(mu_);
    if (pumping_) {
      pump_again_ = true;
      return;
    }
    pumping_ = true;
  }
  for (;;) {
    while (PumpOne()) {
    }
    MutexLock lock(mu_);
    if (!pump_again_) {
      pumping_ = false;
      return;
    }
    pump_again_ = false;
  }
}

bool SenderSession::PumpOne() {
  Operation operation;
  std::shared_ptr<PushCall> granted;
  {
    MutexLock lock(mu_);
    if (granted_ != nullptr) {
      granted = granted_;
    } else {
      if (waits_for_bytes_ || ending_step_ || operations_.empty()) return false;
      Operation& head = operations_.front();
      if (identity_.rank && head.step > active_step_) return false;
      const bool ends_step = head.push == nullptr;
      // A step that lacks a push is never ended; Fail will answer the call.
      if (ends_step && (!ahead_.empty() || !broken_.ok())) return false;
      operation = std::move(head);
      operations_.pop_front();
      if (operation.timer) core_->deadlines().Remove(*operation.timer);
      (ends_step ? ending_step_ : waits_for_bytes_) = true;
    }
  }
  if (granted != nullptr) {
    if (!SendPush(granted)) return false;
    MutexLock lock(mu_);
    granted_ = nullptr;
    return true;
  }
  if (operation.push == nullptr) {
    BeginOrdinals(operation.step);
    std::vector<uint32_t> partitions(next_ordinal_.size());
    std::iota(partitions.begin(), partitions.end(), 0);
    core_->messenger().EndStep(Header(operation.step), std::move(partitions), next_ordinal_, operation.deadline,
                               [self = shared_from_this(), step = operation.step,
                                done = std::move(operation.done)](const absl::Status& status) mutable {
                                 self->OnStepEnded(step, status);
                                 done(status);
                                 done = nullptr;
                                 self->Pump();
                               });
    return true;
  }
  const std::shared_ptr<PushCall> push = operation.push;
  if (core_->push_flow().Acquire(push->flow_step, push->bytes(), push->deadline,
                                 [self = shared_from_this(), push](const absl::Status& status) {
                                   self->OnPushGranted(status, push);
                                   self->Pump();
                                 })) {
    OnPushGranted(absl::OkStatus(), push);
    return true;
  }
  // It may have been granted by now.
  return true;
}

void SenderSession::OnPushGranted(const absl::Status& status, std::shared_ptr<PushCall> push) {
  if (status.ok()) push->set_granted();
  {
    MutexLock lock(mu_);
    waits_for_bytes_ = false;
    BreakLocked(status);
    if (status.ok()) {
      granted_ = std::move(push);
      return;
    }
  }
  push->MessageDone(status);
}

bool SenderSession::SendPush(const std::shared_ptr<PushCall>& push) {
  const uint64_t segments = push->CutItems(static_cast<uint32_t>(next_ordinal_.size()));
  absl::Status refused;
  {
    MutexLock lock(mu_);
    if (!broken_.ok()) {
      refused = broken_;
    } else if (segments > kMaxSegmentsAhead) {
      refused = absl::InvalidArgumentError(absl::StrCat("the push has ", segments,
                                                        " segments in one partition; the limit is ", kMaxSegmentsAhead,
                                                        "; make several calls, or give the job more partitions"));
    } else if (!ahead_.empty() && segments_ahead_ + segments > kMaxSegmentsAhead) {
      return false;
    } else {
      segments_ahead_ += segments;
      push->set_ahead(ahead_.insert(ahead_.end(), Ahead{segments, false}));
    }
  }
  if (!refused.ok()) {
    push->MessageDone(refused);
    return true;
  }
  if (identity_.rank) BeginOrdinals(push->flow_step);
  push->SendSegments(next_ordinal_);
  return true;
}

void SenderSession::BeginOrdinals(uint64_t step) {
  if (step == ordinals_of_step_) return;
  std::fill(next_ordinal_.begin(), next_ordinal_.end(), 0);
  ordinals_of_step_ = step;
}

void SenderSession::OnPushDone(std::optional<std::list<Ahead>::iterator> ahead, const absl::Status& status) {
  {
    MutexLock lock(mu_);
    BreakLocked(status);
    if (ahead) {
      (*ahead)->done = true;
      while (!ahead_.empty() && ahead_.front().done) {
        segments_ahead_ -= ahead_.front().segments;
        ahead_.pop_front();
      }
    }
  }
  if (!status.ok()) Fail(status);
}

void SenderSession::OnStepEnded(uint64_t step, const absl::Status& status) {
  if (!status.ok()) {
    Fail(status);
    return;
  }
  std::vector<WaitingPull> ready;
  {
    MutexLock lock(mu_);
    ending_step_ = false;
    active_step_ = step + 1;
    const auto first_ready =
        std::stable_partition(waiting_pulls_.begin(), waiting_pulls_.end(),
                              [step](const WaitingPull& pull) { return pull.pull->flow_step > step + 1; });
    std::move(first_ready, waiting_pulls_.end(), std::back_inserter(ready));
    waiting_pulls_.erase(first_ready, waiting_pulls_.end());
  }
  for (WaitingPull& pull : ready) {
    if (pull.timer) core_->deadlines().Remove(*pull.timer);
    StartPull(std::move(pull.pull));
  }
}

void SenderSession::BreakLocked(const absl::Status& status) {
  if (!status.ok() && broken_.ok()) broken_ = status;
}

void SenderSession::Fail(const absl::Status& why) {
  std::deque<Operation> operations;
  std::vector<WaitingPull> pulls;
  {
    MutexLock lock(mu_);
    BreakLocked(why);
    operations.swap(operations_);
    pulls.swap(waiting_pulls_);
  }
  for (Operation& operation : operations) {
    if (operation.timer) core_->deadlines().Remove(*operation.timer);
    if (operation.push != nullptr) {
      operation.push->MessageDone(why);
    } else {
      operation.done(why);
    }
  }
  for (WaitingPull& pull : pulls) {
    if (pull.timer) core_->deadlines().Remove(*pull.timer);
    pull.pull->MessageDone(why);
  }
  // A push that waited for older ones ends now.
  Pump();
}

void SenderSession::WatchDeadline(uint64_t id) {
  MutexLock lock(mu_);
  for (auto it = operations_.rbegin(); it != operations_.rend() && it->id >= id; ++it) {
    if (it->id != id) continue;
    it->timer = core_->deadlines().Add(it->deadline, [self = shared_from_this(), id] { self->ExpireOperation(id); });
  }
}

void SenderSession::ExpireOperation(uint64_t id) {
  const absl::Status status = NoTurn();
  std::optional<Operation> expired;
  {
    MutexLock lock(mu_);
    const auto it = std::find_if(operations_.begin(), operations_.end(),
                                 [id](const Operation& operation) { return operation.id == id; });
    if (it == operations_.end()) return;
    BreakLocked(status);
    expired = std::move(*it);
    operations_.erase(it);
  }
  // What comes after it must not be done without it.
  Fail(status);
  if (expired->push != nullptr) {
    expired->push->MessageDone(status);
  } else {
    expired->done(status);
  }
}

void SenderSession::ExpirePull(uint64_t id) {
  std::shared_ptr<PullCall> pull;
  {
    MutexLock lock(mu_);
    const auto it = std::find_if(waiting_pulls_.begin(), waiting_pulls_.end(),
                                 [id](const WaitingPull& waiting) { return waiting.id == id; });
    if (it == waiting_pulls_.end()) return;
    pull = std::move(it->pull);
    waiting_pulls_.erase(it);
  }
  pull->MessageDone(NoTurn());
}

}  // namespace pawl
