#include "server/threads/processor_pressure.h"

#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace pawl {
namespace {

// From a line like "some avg10=0.34 avg60=6.26 avg300=32.77 total=9241714631", in microseconds.
std::optional<int64_t> ReadWaited(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const std::string field = "total=";
  const size_t begin = line.rfind(field);
  int64_t waited;
  if (begin == std::string::npos ||
      !absl::SimpleAtoi(absl::string_view(line).substr(begin + field.size()), &waited))
    return std::nullopt;
  return waited;
}

}  // namespace

double ProcessorPressure::Share() {
  const MonotonicTime now = clock_.Now();
  MutexLock lock(mu_);
  if (read_at_.has_value() && now - *read_at_ < kInterval) return share_;
  const std::optional<int64_t> waited = ReadWaited(file_);
  share_ = waited.has_value() && waited_us_.has_value()
               ? 1e-6 * static_cast<double>(*waited - *waited_us_) / Seconds(now - *read_at_)
               : 0;
  read_at_ = now;
  waited_us_ = waited;
  return share_;
}

}  // namespace pawl
