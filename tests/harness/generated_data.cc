#include "tests/harness/generated_data.h"

#include <cmath>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "client_lib/base/partitioner.h"

namespace pawl {

absl::Status WriteClicks(const ClicksOptions& options, const std::string& path) {
  std::ofstream file(path, std::ios::trunc);
  std::mt19937_64 random(options.seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (uint64_t sample = 0; sample < options.samples; ++sample) {
    double logit = -0.5;
    std::string line;
    for (uint32_t field = 0; field < options.fields; ++field) {
      const auto category = static_cast<uint64_t>(options.categories * std::pow(uniform(), 2.0));
      const uint64_t key = field * uint64_t{options.categories} + category;
      logit += 3.0 * (static_cast<double>(Mix64(key + 1) >> 11) * 0x1p-53 - 0.5);
      absl::StrAppend(&line, " ", key, ":1");
    }
    file << (uniform() < 1.0 / (1.0 + std::exp(-logit)) ? 1 : 0) << line << "\n";
  }
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace pawl
