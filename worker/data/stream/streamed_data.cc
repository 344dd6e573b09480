#include "worker/data/stream/streamed_data.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/data/readers/libsvm_reader.h"
#include "worker/data/stream/rank_stream.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<StreamedData>> StreamedData::Open(
    const Data& spec, const std::vector<std::string>& paths, StreamOptions options) {
  auto data = std::unique_ptr<StreamedData>(new StreamedData(spec, std::move(options)));
  PAWL_ASSIGN_OR_RETURN(std::vector<IndexedFile> files,
                        OpenIndexedFiles(spec, paths, data->options_.index));
  PAWL_RETURN_IF_ERROR(data->Adopt(std::move(files)));
  return data;
}

absl::Status StreamedData::Adopt(std::vector<IndexedFile> files) {
  files_ = std::move(files);
  id_ = DataId(files_);
  if (!spec_.data_id().empty() && spec_.data_id() != id_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the training data of this worker, ", files_.front().path,
                     files_.size() > 1 ? " and others" : "", ", has the identity ", id_,
                     ", but the job's is ", spec_.data_id(),
                     " (data.data_id): the files have another content or order than when the job "
                     "was started"));
  }
  uint32_t most_fields = 0;
  for (size_t f = 0; f < files_.size(); ++f) {
    const BlockIndex& index = files_[f].index;
    PAWL_RETURN_IF_ERROR(bad_samples_.Add(
        index.bad_samples(), index.bad_examples.empty() ? "" : index.bad_examples.front()));
    labels_ = f == 0 ? index.labels
                     : LabelSummary{std::min(labels_.min, index.labels.min),
                                    std::max(labels_.max, index.labels.max),
                                    labels_.integers && index.labels.integers};
    PAWL_ASSIGN_OR_RETURN(const uint32_t fields,
                          LibsvmFields(spec_.libsvm_fields(), index.most_entries, files_[f].path));
    most_fields = std::max(most_fields, fields);
    *options_.used_bytes += index.blocks.size() * sizeof(DataBlock) +
                            index.restarts.size() * sizeof(BlockIndex::Restart);
    samples_ += index.samples();
    for (size_t b = 0; b < index.blocks.size(); ++b) {
      const bool continues = b > 0 && !index.restarts.empty() &&
                             index.blocks[b].restart == index.blocks[b - 1].restart;
      if (!continues) {
        units_.push_back({static_cast<uint32_t>(f), static_cast<uint32_t>(b), 0});
        unit_samples_.push_back(0);
      }
      units_.back().end_block = static_cast<uint32_t>(b + 1);
      unit_samples_.back() += index.blocks[b].samples;
    }
  }
  PAWL_ASSIGN_OR_RETURN(layout_, LayoutOf(spec_));
  if (spec_.format() == LIBSVM) layout_.shape.field_count = most_fields;
  return absl::OkStatus();
}

std::unique_ptr<RankBatches> StreamedData::OpenRank(const Sampler& sampler, uint32_t rank,
                                                    uint64_t end_step,
                                                    const FieldLookup& lookup) const {
  return std::make_unique<RankStream>(*this, sampler, rank, end_step, lookup);
}

std::shared_ptr<const EpochOrder> StreamedData::OrderOf(const Sampler& sampler,
                                                        uint64_t epoch) const {
  constexpr size_t kMaxKept = 2;
  const uint64_t seed = sampler.options().seed;
  const MutexLock lock(mu_);
  for (const KnownOrder& known : orders_) {
    if (known.seed == seed && known.epoch == epoch) return known.order;
  }
  if (orders_.size() == kMaxKept) orders_.erase(orders_.begin());
  orders_.push_back({seed, epoch,
                     std::make_shared<const EpochOrder>(unit_samples_, seed, epoch,
                                                        sampler.options().keep_order)});
  return orders_.back().order;
}

absl::Status StreamedData::Account(uint64_t before, uint64_t now) const {
  const uint64_t total = *options_.used_bytes += now - before;
  if (total <= options_.max_bytes || now <= before) return absl::OkStatus();
  *options_.used_bytes -= now - before;
  return absl::ResourceExhaustedError(absl::StrCat(
      "the windows of this worker's ranks, the indexes of its files and its evaluation "
      "data take ",
      total, " bytes; the limit is ", options_.max_bytes,
      "; reduce data.window_samples, host fewer ranks in a process, or give the "
      "worker more memory (--max_data_bytes)"));
}

StreamCounts StreamedData::counts() const {
  const MutexLock lock(mu_);
  return counts_;
}

}  // namespace pawl
