// A page of a scan, from one partition's primary.
#ifndef PAWL_CLIENT_LIB_SESSION_SCAN_CALL_H_
#define PAWL_CLIENT_LIB_SESSION_SCAN_CALL_H_

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/call.h"
#include "client_lib/client.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/session/client_core.h"

namespace pawl {

// The messenger finds the partition's primary again after every loss and move. Because the order of
// the rows does not depend on the replica, the repeated request needs no other state.
class ScanCall final : public Call, public std::enable_shared_from_this<ScanCall> {
 public:
  // REQUIRES: CheckItem has accepted the item. `result` is filled in before `done` gets OK.
  ScanCall(std::shared_ptr<ClientCore> core, const RequestHeader& header, const ScanItem& item,
           MonotonicTime deadline, std::shared_ptr<ScanPage> result, Callback done)
      : Call({.method = Method::kScan, .name = "the scan", .deadline = deadline}, header),
        core_(std::move(core)),
        item_(item),
        bytes_(std::min(item.keys.size() * RowBytes(), std::max(kMaxScanBytes, RowBytes()))),
        result_(std::move(result)),
        done_(std::move(done)) {}

  void Send() {
    const bool granted =
        core_->pull_flow().Acquire(terms.flow_step, bytes_, terms.deadline,
                                   [call = shared_from_this()](const absl::Status& status) {
                                     if (!status.ok()) return call->MessageDone(status);
                                     call->SendGranted();
                                   });
    if (granted) SendGranted();
  }

  OutgoingMessage Encode(const Message&, const RequestHeader& header) const override {
    ScanRequest request;
    *request.mutable_header() = header;
    request.set_table(item_.table.id());
    request.set_partition(item_.partition);
    request.set_first_key(item_.first_key);
    request.set_max_rows(static_cast<uint32_t>(item_.keys.size()));
    request.set_with_slots(!item_.slots.empty());
    return EncodeSmall(request);
  }

  absl::Status TakeAnswer(const Message&, const IncomingMessage& answer) override {
    PAWL_ASSIGN_OR_RETURN(const ScanResponseView page, DecodeScanResponse(answer.bytes));
    const size_t rows = page.keys.size() / sizeof(uint64_t);
    const size_t value_bytes = rows * item_.table.row_width() * sizeof(float);
    const size_t slot_bytes = rows * SlotFloats() * sizeof(float);
    if (page.keys.size() % sizeof(uint64_t) != 0 || rows > item_.keys.size() ||
        page.values.size() != value_bytes || page.slots.size() != slot_bytes ||
        (!page.done && (rows == 0 || page.next_key <= item_.first_key))) {
      return absl::InternalError(absl::StrCat(
          "the server answered ", page.keys.size(), " bytes of keys, ", page.values.size(),
          " of values, ", page.slots.size(), " of slots and the next key ", page.next_key,
          " for at most ", item_.keys.size(), " rows of table `", item_.table.name(), "` from key ",
          item_.first_key));
    }
    page.keys.CopyTo(item_.keys.data());
    page.values.CopyTo(item_.values.data());
    page.slots.CopyTo(item_.slots.data());
    result_->rows = rows;
    if (!page.done) result_->next_key = page.next_key;
    return absl::OkStatus();
  }

  void Finish(const absl::Status& status) override {
    if (granted_) core_->pull_flow().Release(terms.flow_step, bytes_);
    done_(status);
    done_ = nullptr;
  }

 private:
  size_t SlotFloats() const {
    return item_.slots.empty() ? 0 : item_.table.SlotFloats(item_.table.row_width());
  }
  size_t RowBytes() const {
    return sizeof(uint64_t) + (item_.table.row_width() + SlotFloats()) * sizeof(float);
  }
  void SendGranted() {
    granted_ = true;
    auto message = std::make_shared<Message>();
    message->call = shared_from_this();
    message->segments.emplace_back().partition = item_.partition;
    message->bytes = bytes_;
    core_->messenger().Send(std::move(message));
  }

  const std::shared_ptr<ClientCore> core_;
  const ScanItem item_;
  // The most that the answer can have.
  const size_t bytes_;
  bool granted_ = false;
  const std::shared_ptr<ScanPage> result_;
  Callback done_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_SCAN_CALL_H_
