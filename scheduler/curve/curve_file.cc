#include "scheduler/curve/curve_file.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

absl::Status Append(WritableFile& file, const std::string& text) {
  const std::array<WritableFile::Fragment, 1> fragments = {
      WritableFile::Fragment(text.data(), text.size())};
  return file.Append(fragments);
}

const char* KindName(CurvePoint::Kind kind) {
  switch (kind) {
    case CurvePoint::Kind::kTraining:
      return "train";
    case CurvePoint::Kind::kEvaluation:
      return "eval";
    case CurvePoint::Kind::kMetrics:
      return "metrics";
  }
  return "";
}

// See CurveFile::last_evaluation_step.
absl::StatusOr<std::optional<uint64_t>> LastEvaluationStep(Env& env, const std::string& path) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, env.OpenForRead(path));
  PAWL_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  std::string tail(std::min(size, kCurveTailBytes), '\0');
  PAWL_ASSIGN_OR_RETURN(const size_t read, file->Read(size - tail.size(), absl::MakeSpan(tail)));
  tail.resize(read);
  std::optional<uint64_t> last;
  if (size <= kCurveTailBytes) last = 0;
  for (const absl::string_view line : absl::StrSplit(tail, '\n')) {
    if (!absl::StartsWith(line, R"({"kind":"eval")")) continue;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto step = json.find("step");
    if (step != json.end() && step->is_number_unsigned()) last = step->get<uint64_t>();
  }
  return last;
}

}  // namespace

std::string CurveLine(double unix_s, const CurvePoint& point) {
  using Json = nlohmann::ordered_json;
  Json json = {{"kind", KindName(point.kind)},
               {"time", point.unix_s > 0 ? point.unix_s : unix_s},
               {"train_s", point.train_s},
               {"step", point.step},
               {"samples", point.samples}};
  const bool is_own = point.kind == CurvePoint::Kind::kMetrics;
  Json& values = is_own ? json["metrics"] : json;
  for (const auto& [tag, value] : point.values) {
    // Names may have slashes themselves: "eval/buy/auc" is "buy/auc".
    values[tag.substr(tag.find('/') + 1)] = std::isfinite(value) ? Json(value) : Json(nullptr);
  }
  return json.dump();
}

absl::StatusOr<std::unique_ptr<CurveFile>> CurveFile::Open(Env& env, const std::string& path,
                                                           bool continues) {
  if (continues) {
    absl::StatusOr<std::unique_ptr<WritableFile>> file = env.OpenForAppend(path);
    if (file.ok()) {
      // A file that cannot be read, such as a pipe, can be appended to.
      const std::optional<uint64_t> last = LastEvaluationStep(env, path).value_or(std::nullopt);
      // Ends a line that the earlier process did not complete.
      PAWL_RETURN_IF_ERROR(Append(**file, "\n"));
      return std::unique_ptr<CurveFile>(new CurveFile(*std::move(file), last));
    }
    if (!absl::IsNotFound(file.status())) return file.status();
  }
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, env.Create(path));
  return std::unique_ptr<CurveFile>(new CurveFile(std::move(file), 0));
}

absl::Status CurveFile::Add(double unix_s, const CurvePoint& point) {
  return Append(*file_, CurveLine(unix_s, point) + "\n");
}

}  // namespace pawl
