#include "scheduler/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "scheduler/digest.h"

namespace pawl {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinities and no NaN.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json EvaluationJson(const EvaluationResult& result) {
  Json json = {{"evaluation", result.evaluation()}, {"step", result.step()}, {"samples", result.samples()}};
  if (result.has_auc()) json["auc"] = Number(result.auc());
  if (result.has_logloss()) json["logloss"] = Number(result.logloss());
  if (result.has_accuracy()) json["accuracy"] = Number(result.accuracy());
  if (result.has_rmse()) json["rmse"] = Number(result.rmse());
  return json;
}

absl::Status FileError(const std::string& what, const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

absl::Status WriteAndSync(const std::string& path, const std::string& contents) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return FileError("create", path);
  absl::Status status;
  for (size_t written = 0; written < contents.size() && status.ok();) {
    const ssize_t count = write(file, contents.data() + written, contents.size() - written);
    if (count >= 0) {
      written += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      status = FileError("write", path);
    }
  }
  if (status.ok() && fsync(file) != 0) status = FileError("sync", path);
  if (close(file) != 0 && status.ok()) status = FileError("close", path);
  return status;
}

}  // namespace

std::string MetricsJson(const JobReport& report) {
  const GetStatusResponse& status = report.status;
  Json json;
  json["job"] = status.job().name();
  json["mode"] = ConsistencyMode_Name(status.job().consistency().mode());
  json["state"] = JobState_Name(status.state());
  json["servers"] = report.servers;
  json["workers"] = report.workers;
  json["logical_workers"] = status.job().logical_workers();
  json["steps"] = status.steps();
  json["samples"] = status.samples();
  json["wall_s"] = Number(status.train_s());
  json["samples_per_s"] =
      status.train_s() > 0 ? Number(static_cast<double>(status.samples()) / status.train_s()) : Json(0.0);
  json["loss"] = Number(status.loss());
  json["eval"] = report.evaluation.has_value() ? EvaluationJson(*report.evaluation) : Json::object();
  json["evaluations"] = Json::array();
  for (const EvaluationResult& result : status.evaluations()) json["evaluations"].push_back(EvaluationJson(result));
  json["digest"] = status.has_digest() ? Json(DigestText(status.digest())) : Json(nullptr);
  json["pushes_applied"] = status.counters().pushes_applied();
  json["pushes_deduplicated"] = status.counters().pushes_deduplicated();
  json["pushes_late"] = status.counters().pushes_late();
  json["staleness_max"] = status.counters().staleness_max();
  json["rows"] = status.counters().rows();
  json["parameter_bytes"] = status.counters().parameter_bytes();
  if (!status.failure().empty()) json["failure"] = status.failure();
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status WriteFileAtomically(const std::string& path, const std::string& contents) {
  const std::string temporary = absl::StrCat(path, ".tmp.", getpid());
  absl::Status status = WriteAndSync(temporary, contents);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) status = FileError("rename to", path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace pawl
