// A stream from this server to another, which carries the entries of some partitions in order.
#ifndef PAWL_SERVER_REPLICATION_REPLICATION_STREAM_H_
#define PAWL_SERVER_REPLICATION_REPLICATION_STREAM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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

// The most bytes of entries in one request; a single larger entry travels alone.
inline constexpr size_t kMaxStreamRequestBytes = size_t{16} << 20;
// The most positions asked for in one request. An answer holds up to kMaxTermRuns runs for each,
// and must be a small message (DecodeSmall).
inline constexpr size_t kMaxAsksInRequest = 512;
// The time allowed for applying and syncing, in addition to TransferTime.
inline constexpr std::chrono::milliseconds kStreamDeadline{1250};
// The pause between the tries of a request. It doubles with each consecutive refusal, up to the
// second value: a refusing receiver gets the whole request each time and tends to keep refusing, as
// with a full disk.
inline constexpr std::chrono::milliseconds kStreamRetryInterval{20};
inline constexpr std::chrono::milliseconds kMaxStreamRetryInterval{320};
// The primary stops waiting for a receiver that accepts nothing for this long, for two leases and
// for that many tries. Writes stall meanwhile.
inline constexpr std::chrono::milliseconds kMaxFollowerSilence{2500};
inline constexpr uint32_t kMinFailedTries = 2;
// The primary also stops waiting for a receiver if all of its answers over the second time take
// longer than the first one: it delays every acknowledgement that needs it.
inline constexpr std::chrono::milliseconds kSlowAnswerTime{1000};
inline constexpr std::chrono::milliseconds kMaxSlowTime{10000};

// Sends one request at a time. Entries appended while it is in flight go into the next one, so they
// stay in order and batches grow with the load. A failed request is sent again until it succeeds or
// its entries are discarded. Thread-safe. Owned by shared_ptr, which a request in flight shares.
// Its lock is acquired after a replica's.
//
// The queue is not bounded here. Entries are held for callers that wait or have given up waiting,
// whose pushes count as in flight until they are accepted (DataPlaneOptions::max_bytes_in_flight),
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
  // An incarnation of a server: its node and incarnation.
  using Server = std::pair<std::string, uint64_t>;

  // What a stream asks and tells its owner; called without locks.
  class Owner {
   public:
    // The sender of the next request and its epoch.
    virtual ReplicationHeader Header() const = 0;
    // The receiver has answered a request that was sent at `sent`, by LeaseNow. `asked`: the
    // partitions of AskPosition, ascending, that this answers.
    virtual void OnAnswer(const Server& receiver, const ReplicateResponse& response,
                          const std::vector<uint32_t>& asked, MonotonicTime sent) = 0;
    // A request was refused or lost; it will be sent again.
    virtual void OnFailure(const Server& receiver, const absl::Status& status) = 0;

   protected:
    ~Owner() = default;
  };

  // Everything outlives the stream's calls.
  ReplicationStream(Transport& transport, const Clock& clock, std::string address, Server receiver,
                    Owner& owner)
      : transport_(transport),
        clock_(clock),
        address_(std::move(address)),
        receiver_(std::move(receiver)),
        owner_(owner) {}

  const std::string& address() const { return address_; }

  // Neither encodes nor sends. The caller calls Pump soon, without locks.
  void Append(Entry entry);
  // Asks for the position of the receiver's replica after the request in flight. The caller calls
  // Pump soon, without locks.
  void AskPosition(uint32_t partition);
  // Removes the queued entries of a partition and the question for its position. A request in
  // flight may still arrive.
  void Discard(uint32_t partition);
  // The bytes queued for a partition.
  size_t BytesOf(uint32_t partition) const;
  // The bytes queued for all partitions.
  size_t Bytes() const;
  // Sends what is queued, if no request is in flight. `even_if_empty`: sends a request without
  // entries too, to get a promise. REQUIRES: no replica's lock.
  void Pump(bool even_if_empty = false);
  // The time since which requests fail, once kMinFailedTries have failed.
  std::optional<MonotonicTime> FailingSince() const;
  // Whether all answers have been slow for so long, and anything is queued.
  bool IsSlowFor(MonotonicDuration duration) const;
  // From now on sends nothing.
  void Close();

 private:
  void Send(const ReplicationHeader& header, std::vector<Entry> entries,
            std::vector<uint32_t> asks);
  void OnAnswer(MonotonicTime sent, absl::Status status, IncomingMessage answer);

  Transport& transport_;
  const Clock& clock_;
  const std::string address_;
  const Server receiver_;
  Owner& owner_;

  mutable Mutex mu_;
  bool closed_ PAWL_GUARDED_BY(mu_) = false;
  bool in_flight_ PAWL_GUARDED_BY(mu_) = false;
  // When the first try of the request in flight started, and how many tries have failed.
  std::optional<MonotonicTime> first_try_ PAWL_GUARDED_BY(mu_);
  uint32_t failed_tries_ PAWL_GUARDED_BY(mu_) = 0;
  std::optional<MonotonicTime> slow_since_ PAWL_GUARDED_BY(mu_);
  // When the last request succeeded.
  MonotonicTime answered_at_ PAWL_GUARDED_BY(mu_) = MonotonicTime::min();
  // How many of the latest failed tries were refusals.
  uint32_t refusals_ PAWL_GUARDED_BY(mu_) = 0;
  // In order; the first `sent_` entries are in the request in flight.
  std::deque<Entry> queue_ PAWL_GUARDED_BY(mu_);
  size_t sent_ PAWL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint32_t, size_t> bytes_ PAWL_GUARDED_BY(mu_);
  size_t all_bytes_ PAWL_GUARDED_BY(mu_) = 0;
  // Partitions whose position the next request asks for, and those of the request in flight.
  absl::btree_set<uint32_t> asks_ PAWL_GUARDED_BY(mu_);
  absl::btree_set<uint32_t> asked_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPLICATION_STREAM_H_
