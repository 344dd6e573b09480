// Data that is read while it is used.
#ifndef PAWL_WORKER_DATA_STREAM_STREAMED_DATA_H_
#define PAWL_WORKER_DATA_STREAM_STREAMED_DATA_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/mutex.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/readers/sample_reader.h"
#include "worker/data/sample_format.h"
#include "worker/data/stream/indexed_files.h"
#include "worker/data/stream/stream_order.h"
#include "worker/data/training_data.h"

namespace pawl {

struct StreamOptions {
  IndexOptions index = {};
  // Memory of the indexes, and of the windows and decompressors of all ranks of this process. More
  // is refused with RESOURCE_EXHAUSTED.
  uint64_t max_bytes = uint64_t{64} << 30;
  // Memory of the windows of one rank. 0: only max_bytes limits it.
  uint64_t max_rank_bytes = 0;
  // Bytes in use, shared by all data of the process.
  std::shared_ptr<std::atomic<uint64_t>> used_bytes = std::make_shared<std::atomic<uint64_t>>(0);
  // The job can raise max_bad_samples, and errors say so.
  bool is_training = true;
};

// How the reading kept up.
struct StreamCounts {
  uint64_t windows = 0;
  uint64_t samples = 0;
  // The time that reading took, and the part for which batches had to wait.
  double read_s = 0;
  double waited_s = 0;
};

// Every rank holds two windows (StreamOrder): it uses one while a thread reads the next one. Taking
// over a rank costs the reading of one window, because where its samples are is computed.
//
// Thread-safe.
class StreamedData final : public TrainingData {
 public:
  // Opens the files, and makes missing indexes. INVALID_ARGUMENT for more malformed samples than
  // data.max_bad_samples. FAILED_PRECONDITION for a file that has changed, or data whose identity
  // is not data.data_id. Other errors are those of OpenIndexedFiles. REQUIRES: the spec is valid
  // and has window_samples.
  static absl::StatusOr<std::unique_ptr<StreamedData>> Open(const Data& spec,
                                                            const std::vector<std::string>& paths,
                                                            StreamOptions options);

  uint64_t size() const override { return samples_; }
  const DataShape& shape() const override { return layout_.shape; }
  uint64_t fingerprint() const override {
    return samples_ << 32 | Crc32c(0, id_.data(), id_.size());
  }
  std::unique_ptr<RankBatches> OpenRank(const Sampler& sampler, uint32_t rank, uint64_t end_step,
                                        const FieldLookup& lookup) const override;

  const LabelSummary& labels() const { return labels_; }
  const BadSamples& bad_samples() const { return bad_samples_; }
  // DataId of the files.
  const std::string& id() const { return id_; }
  StreamCounts counts() const;

 private:
  friend class RankStream;
  // Consecutive blocks of a file that are shuffled together.
  struct Unit {
    uint32_t file;
    uint32_t first_block;
    uint32_t end_block;
  };

  StreamedData(const Data& spec, StreamOptions options)
      : spec_(spec),
        options_(std::move(options)),
        bad_samples_(spec.max_bad_samples(),
                     options_.is_training ? BadSamples::kTrainingRemedy : "") {}

  absl::Status Adopt(std::vector<IndexedFile> files);
  // The last two orders that were asked for are kept.
  std::shared_ptr<const EpochOrder> OrderOf(const Sampler& sampler, uint64_t epoch) const;
  // A window or reader of a rank has `now` bytes in place of `before`.
  absl::Status Account(uint64_t before, uint64_t now) const;

  const Data spec_;
  const StreamOptions options_;
  // Constant after Open.
  std::vector<IndexedFile> files_;
  std::vector<Unit> units_;
  std::vector<uint64_t> unit_samples_;
  uint64_t samples_ = 0;
  SampleLayout layout_;
  LabelSummary labels_;
  BadSamples bad_samples_;
  std::string id_;

  mutable Mutex mu_;
  struct KnownOrder {
    uint64_t seed;
    uint64_t epoch;
    std::shared_ptr<const EpochOrder> order;
  };
  mutable std::vector<KnownOrder> orders_ PAWL_GUARDED_BY(mu_);
  mutable StreamCounts counts_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_STREAM_STREAMED_DATA_H_
