// The way from this server to another one on which the entries of some partitions travel in order.
#ifndef PAWL_SERVER_REPLICATION_REPLICATION_STREAM_H_
#define PAWL_SERVER_REPLICATION_REPLICATION_STREAM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/transport.h"
#include "proto/replication.pb.h"

namespace pawl {

// Of entries in one request; a single larger entry travels alone.
inline constexpr size_t kMaxStreamRequestBytes = size_t{16} << 20;
// Of positions asked for in one request. An answer holds up to kMaxTermRuns runs for each, and must
// be a small message (DecodeSmall).
inline constexpr size_t kMaxAsksInRequest = 512;
// What applying and syncing may take besides TransferTime.
inline constexpr std::chrono::milliseconds kStreamDeadline{1250};
// Between the tries of a request; with each refusal in a row twice as long, up to the second, since
// whoever refuses has got all of it and goes on refusing for a while, as with a full disk.
inline constexpr std::chrono::milliseconds kStreamRetryInterval{20};
inline constexpr std::chrono::milliseconds kMaxStreamRetryInterval{320};
// A receiver that takes nothing for so long, for two leases and in so many tries is not waited for
// any more: writes stand still meanwhile.
inline constexpr std::chrono::milliseconds kSilentTooLong{2500};
inline constexpr uint32_t kTriesOfTheSilent = 2;
// A receiver all of whose answers have taken longer than the first, for as long as the second,
// holds up what it must acknowledge: it is not waited for any more either.
inline constexpr std::chrono::milliseconds kSlowAnswer{1000};
inline constexpr std::chrono::milliseconds kSlowTooLong{10000};

// One request at a time: whatever was appended while it was under way goes into the next one, so
// that order costs nothing and the load makes the batches. A request that fails is sent again until
// it succeeds, or until the entries are discarded. Thread-safe; owned by shared_ptr, which a
// request under way shares. Its lock is taken after a replica's.
//
// What is queued is not bounded here: entries are held for callers that wait or have given up
// waiting, whose pushes are in flight until they are taken (DataPlaneOptions::max_bytes_in_flight),
// and for learners, whose backlog the replica watches (BytesOf).
class ReplicationStream : public std::enable_shared_from_this<ReplicationStream> {
 public:
  // A serialized LogEntry.
  struct Entry {
    uint32_t partition = 0;
    uint64_t index = 0;
    ByteView bytes;
    std::shared_ptr<const void> owner;
  };
  struct Events {
    // Fills in who sends, by which epoch.
    std::function<ReplicationHeader()> header;
    // The receiver has answered a request that was sent at `sent`, by LeaseNow. `asked`: the
    // partitions of AskPosition, ascending, whose answer this is.
    std::function<void(const ReplicateResponse&, const std::vector<uint32_t>& asked,
                       MonotonicTime sent)>
        answered;
    // A request was refused or lost; it will be sent again.
    std::function<void(const absl::Status&)> failed;
  };

  ReplicationStream(Transport& transport, const Clock& clock, std::string address, Events events)
      : transport_(transport),
        clock_(clock),
        address_(std::move(address)),
        events_(std::move(events)) {}

  const std::string& address() const { return address_; }

  // Cheap: encodes and sends nothing. The caller calls Pump, without locks, soon.
  void Append(Entry entry);
  // Asks where the receiver's replica of the partition is, after what is under way. Likewise.
  void AskPosition(uint32_t partition);
  // Forgets what is queued for a partition, and that its position was asked. A request under way
  // may still arrive.
  void Discard(uint32_t partition);
  // Bytes queued for a partition.
  size_t BytesOf(uint32_t partition) const;
  // For all.
  size_t Bytes() const;
  // Sends what is queued, if nothing is under way. Not under a replica's lock.
  void Pump();
  // Since when what has been sent was not taken, if kTriesOfTheSilent have failed.
  std::optional<MonotonicTime> FailingSince() const;
  // Since when all answers have been slow, if something is under way.
  std::optional<MonotonicTime> SlowSince() const;
  // Sends a request without entries, for the promise alone, if nothing is under way.
  void Ping();
  // Nothing is sent from now on.
  void Close();

 private:
  void Send(const ReplicationHeader& header, std::vector<Entry> entries,
            std::vector<uint32_t> asks);
  void OnAnswer(MonotonicTime sent, absl::Status status, IncomingMessage answer);

  Transport& transport_;
  const Clock& clock_;
  const std::string address_;
  const Events events_;

  mutable Mutex mu_;
  bool closed_ PAWL_GUARDED_BY(mu_) = false;
  bool under_way_ PAWL_GUARDED_BY(mu_) = false;
  // When the first try of what is under way began, and how many have failed.
  std::optional<MonotonicTime> first_try_ PAWL_GUARDED_BY(mu_);
  uint32_t failed_tries_ PAWL_GUARDED_BY(mu_) = 0;
  std::optional<MonotonicTime> slow_since_ PAWL_GUARDED_BY(mu_);
  // The last of them that were refusals.
  uint32_t refusals_ PAWL_GUARDED_BY(mu_) = 0;
  // In order; the first `sent_` of them are in the request under way.
  std::deque<Entry> queue_ PAWL_GUARDED_BY(mu_);
  size_t sent_ PAWL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint32_t, size_t> bytes_ PAWL_GUARDED_BY(mu_);
  size_t all_bytes_ PAWL_GUARDED_BY(mu_) = 0;
  // Partitions whose position is to be asked for, and those whose was in the request under way.
  absl::btree_set<uint32_t> asks_ PAWL_GUARDED_BY(mu_);
  absl::btree_set<uint32_t> asked_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPLICATION_STREAM_H_
