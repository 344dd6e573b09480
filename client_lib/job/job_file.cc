#include "client_lib/job/job_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client_lib/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"

namespace pawl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// After one mistake the parser may report every word.
constexpr size_t kMaxMistakesShown = 10;

class MistakeCollector final : public google::protobuf::io::ErrorCollector {
 public:
  explicit MistakeCollector(std::string name) : name_(std::move(name)) {}

  // The parser counts lines and columns from 0.
  void AddError(int line, int column, const std::string& message) override {
    if (mistakes_.size() == kMaxMistakesShown) return;
    if (line < 0) {
      mistakes_.push_back(absl::StrCat(name_, ": ", message));
    } else {
      mistakes_.push_back(absl::StrCat(name_, ":", line + 1, ":", column + 1, ": ", message));
    }
  }

  std::string Text() const { return absl::StrJoin(mistakes_, "\n"); }

 private:
  const std::string name_;
  std::vector<std::string> mistakes_;
};

std::string FieldNames(const Descriptor& descriptor) {
  std::vector<std::string> names;
  names.reserve(descriptor.field_count());
  for (int i = 0; i < descriptor.field_count(); ++i) names.push_back(descriptor.field(i)->name());
  return absl::StrJoin(names, ", ");
}

std::string Absolute(const std::string& path, const std::filesystem::path& folder) {
  if (path.empty()) return path;
  return (folder / path).lexically_normal().string();
}

// Gives a folder one name: no slash at its end.
std::string AbsoluteFolder(const std::string& path, const std::filesystem::path& folder) {
  std::string absolute = Absolute(path, folder);
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

absl::Status TooLong(absl::string_view text, const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", text.size(), " bytes; a job file has at most ", kMaxJobFileBytes));
}

}  // namespace

absl::StatusOr<Job> ParseJob(absl::string_view text, const std::string& name) {
  if (text.size() > kMaxJobFileBytes) return TooLong(text, name);
  MistakeCollector mistakes(name);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&mistakes);
  Job job;
  if (!parser.ParseFromString(std::string(text), &job))
    return absl::InvalidArgumentError(mistakes.Text());
  return job;
}

absl::StatusOr<Job> ParseJsonJob(absl::string_view text, const std::string& name) {
  if (text.size() > kMaxJobFileBytes) return TooLong(text, name);
  Job job;
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(text.data(), text.size()), &job);
  if (!status.ok())
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message().ToString()));
  return job;
}

absl::StatusOr<Job> ReadJobFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat("job file ", path, ": is a folder"));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const std::string text = absl::StrCat("job file ", path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
  }
  std::string text(kMaxJobFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad())
    return absl::UnavailableError(absl::StrCat("job file ", path, ": ", std::strerror(errno)));
  text.resize(static_cast<size_t>(file.gcount()));
  PAWL_ASSIGN_OR_RETURN(
      Job job, absl::EndsWith(path, ".json") ? ParseJsonJob(text, path) : ParseJob(text, path));
  ResolvePaths(job, std::filesystem::path(path).parent_path().string());
  return job;
}

void ResolvePaths(Job& job, const std::string& folder) {
  std::error_code error;
  const std::filesystem::path base =
      std::filesystem::absolute(folder.empty() ? "." : folder, error);
  if (!job.checkpoint().dir().empty())
    job.mutable_checkpoint()->set_dir(AbsoluteFolder(job.checkpoint().dir(), base));
  if (!job.has_data()) return;
  Data& data = *job.mutable_data();
  for (std::string& path : *data.mutable_train()) path = Absolute(path, base);
  for (std::string& path : *data.mutable_eval()) path = Absolute(path, base);
}

absl::Status ApplyOverride(Job& job, absl::string_view override_text) {
  const size_t equals = override_text.find('=');
  if (equals == absl::string_view::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("override '", override_text,
                     "': write path=value, as in optimizer.adagrad.learning_rate=0.1"));
  }
  const absl::string_view path = override_text.substr(0, equals);
  const absl::string_view value = absl::StripAsciiWhitespace(override_text.substr(equals + 1));

  // Converts the override to protobuf text, "a { b { c: value } }", and merges it into a copy of
  // the job.
  Job changed = job;
  std::string text;
  std::string closing;
  Message* message = &changed;
  const std::vector<absl::string_view> names = absl::StrSplit(path, '.');
  for (size_t i = 0; i < names.size(); ++i) {
    const Descriptor& descriptor = *message->GetDescriptor();
    const FieldDescriptor* field = descriptor.FindFieldByName(std::string(names[i]));
    const std::string where =
        i == 0
            ? std::string("a job")
            : absl::StrJoin(std::vector<absl::string_view>(names.begin(), names.begin() + i), ".");
    if (field == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("override '", override_text, "': ", where,
                                                     " has no field '", names[i], "'; it has ",
                                                     FieldNames(descriptor)));
    }
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    const bool is_last = i + 1 == names.size();
    const bool is_list = absl::StartsWith(value, "[") || value.empty();
    if (field->is_repeated() && is_message && !(is_last && is_list)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "override '", override_text, "': '", names[i],
          "' is a list of messages: replace all of it by [{...}, {...}], clear it by []"));
    }
    if (!is_last) {
      if (!is_message) {
        return absl::InvalidArgumentError(
            absl::StrCat("override '", override_text, "': '", names[i], "' has no fields"));
      }
      absl::StrAppend(&text, names[i], " { ");
      absl::StrAppend(&closing, " }");
      message = message->GetReflection()->MutableMessage(message, field);
      continue;
    }
    message->GetReflection()->ClearField(message, field);
    // An empty list. Strings may also write it as a list of nothing in quotes.
    if (field->is_repeated() && value.empty()) continue;
    if (is_message && field->is_repeated()) {
      absl::StrAppend(&text, names[i], ": ", value);
    } else if (is_message) {
      const bool braces = !value.empty() && value.front() == '{';
      absl::StrAppend(&text, names[i], braces ? " " : " { ", value, braces ? "" : " }");
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
               !(field->is_repeated() && absl::StartsWith(value, "["))) {
      if (field->is_repeated() && (value == "\"\"" || value == "''")) continue;
      const bool quoted = value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
                          value.back() == value.front();
      absl::StrAppend(&text, names[i], ": ");
      absl::StrAppend(&text,
                      quoted ? std::string(value) : absl::StrCat("\"", absl::CEscape(value), "\""));
    } else {
      absl::StrAppend(&text, names[i], ": ", value);
    }
  }
  text += closing;

  MistakeCollector mistakes(absl::StrCat("override '", override_text, "'"));
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&mistakes);
  if (!parser.MergeFromString(text, &changed)) return absl::InvalidArgumentError(mistakes.Text());
  job = std::move(changed);
  return absl::OkStatus();
}

uint32_t DefaultPartitions(const Job& job) {
  if (job.batch_size() == 0) return kMaxDefaultPartitions;
  const uint32_t share = job.batch_size() / job.logical_workers();
  const uint32_t least =
      job.batch_size() >= kLargeBatch ? kMinPartitionsOfLargeBatches : kMinDefaultPartitions;
  return std::clamp(std::bit_floor(share / 16), least, kMaxDefaultPartitions);
}

void FillDefaults(Job& job, uint32_t workers) {
  if (job.logical_workers() == 0) job.set_logical_workers(workers > 0 ? workers : 1);
  if (job.partitions() == 0) job.set_partitions(DefaultPartitions(job));
  if (job.consistency().mode() == CONSISTENCY_MODE_UNSPECIFIED)
    job.mutable_consistency()->set_mode(SYNC);
  if (job.dense_path() == DENSE_PATH_UNSPECIFIED) job.set_dense_path(SERVER);
  if (job.dense_path() == ALLREDUCE) {
    AllReduce& all_reduce = *job.mutable_all_reduce();
    if (all_reduce.write_back_steps() == 0) all_reduce.set_write_back_steps(100);
  }
  if (job.micro_batches() == 0) job.set_micro_batches(1);
  if (job.replicas() == 0) job.set_replicas(1);
  if (job.min_in_sync() == 0) job.set_min_in_sync(1);
  if (job.durability() == DURABILITY_UNSPECIFIED) job.set_durability(LOG);
  if (job.has_checkpoint() && job.checkpoint().keep() == 0) job.mutable_checkpoint()->set_keep(3);
  if (!job.has_model()) return;

  if (job.epochs() == 0) job.set_epochs(1);
  Model& model = *job.mutable_model();
  if (model.loss() == LOSS_UNSPECIFIED) {
    if (model.has_mlp() && model.mlp().classes() > 1) {
      model.set_loss(SOFTMAX_CROSS_ENTROPY);
    } else {
      model.set_loss(model.has_matrix_factorization() ? SQUARED : LOGISTIC);
    }
  }
  if (job.has_evaluation() && job.evaluation().has_early_stopping()) {
    EarlyStopping& early_stopping = *job.mutable_evaluation()->mutable_early_stopping();
    if (early_stopping.patience() == 0) early_stopping.set_patience(1);
    if (early_stopping.metric() == METRIC_UNSPECIFIED) {
      early_stopping.set_metric(model.loss() == LOGISTIC  ? AUC
                                : model.loss() == SQUARED ? RMSE
                                                          : ACCURACY);
    }
  }
}

std::string JobText(const Job& job) {
  std::string text;
  TextFormat::PrintToString(job, &text);
  return text;
}

}  // namespace pawl
