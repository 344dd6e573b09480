// Scans: a page is selected and copied outside of the partition's lock.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/data_plane/byte_reservation.h"
#include "server/data_plane/data_plane.h"
#include "server/shard/scan/row_page.h"

namespace pawl {

absl::StatusOr<HeldTable> DataPlane::HoldTable(Replica& replica, uint64_t epoch,
                                               uint32_t table) const {
  MutexLock lock(replica.mu);
  PAWL_RETURN_IF_ERROR(CheckServes(replica, epoch));
  PAWL_RETURN_IF_ERROR(CheckLease(replica));
  const TablePart* const part = replica.partition->FindTable(table);
  if (part == nullptr) return NoSuchTable(table);
  return part->Hold();
}

absl::StatusOr<OutgoingMessage> DataPlane::AnswerScan(const ScanRequest& request) {
  struct Owned {
    std::shared_ptr<const ByteReservation> reservation;  // destroyed last
    RowPage page;
  };
  Sender sender;
  PAWL_ASSIGN_OR_RETURN(const auto view, Admit(request.header(), sender));
  PAWL_ASSIGN_OR_RETURN(const auto replica, Find(*view, request.partition()));
  const auto table = view->tables.find(request.table());
  if (table == view->tables.end()) return NoSuchTable(request.table());
  if (table->second->is_dense()) {
    return absl::InvalidArgumentError(absl::StrCat("table `", table->second->spec().name(),
                                                   "` is dense; pull its blocks instead"));
  }
  RowPageLimits limits = {
      .rows = SIZE_MAX, .bytes = kMaxScanBytes, .with_slots = request.with_slots()};
  if (request.max_rows() > 0) limits.rows = std::min<size_t>(limits.rows, request.max_rows());
  if (request.max_bytes() > 0) limits.bytes = std::min<size_t>(limits.bytes, request.max_bytes());

  auto owned = std::make_shared<Owned>();
  // The page, and the keys among which it is selected.
  owned->reservation =
      ByteReservation::Take(bytes_in_flight_, options_.max_bytes_in_flight, 4 * limits.bytes);
  if (owned->reservation == nullptr) return TooManyBytesInFlight();
  {
    PAWL_ASSIGN_OR_RETURN(const HeldTable held,
                          HoldTable(*replica, request.header().epoch(), request.table()));
    owned->page = ReadPage(held, request.first_key(), limits);
  }
  const RowPage& page = owned->page;
  ScanResponseView response;
  response.keys.Append(page.keys.data(), page.keys.size() * sizeof(uint64_t));
  response.values.Append(page.values.data(), page.values.size() * sizeof(float));
  response.slots.Append(page.slots.data(), page.slots.size() * sizeof(float));
  response.done = page.done;
  response.next_key = page.next_key;
  return EncodeScanResponse(response, std::move(owned));
}

void DataPlane::Scan(IncomingMessage message, Reply reply) {
  ScanRequest request;
  if (absl::Status status = DecodeSmall(message.bytes, request); !status.ok())
    return Refuse(Method::kScan, nullptr, std::move(status), reply);
  absl::StatusOr<OutgoingMessage> answer = AnswerScan(request);
  if (!answer.ok()) return Refuse(Method::kScan, &request.header(), answer.status(), reply);
  reply(absl::OkStatus(), *std::move(answer));
}

}  // namespace pawl
