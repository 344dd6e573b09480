// Makes the data sets of deploy/bench, with every category numbered, so that all competitors train
// on the same samples.
//
//   bench_data --shape=criteo --rows=12000000 --train_samples=2500000 --out=DIR
//   bench_data --shape=flights --train=flights-train.csv --test=flights-eval.csv --out=DIR
//
// Leaves in DIR:
//   train.rows, test.rows      for each sample, one little-endian uint32 per field: a category's
//                              row. The rows of field 0 come first, then those of field 1.
//   train.labels, test.labels  for each sample a float: 0 or 1
//   train.libsvm, test.libsvm  the same as text, for Pawl (criteo only)
//   data.json                  {"field_rows": [rows of each field], "train": samples, "test": ...}
//
// The Criteo-shaped samples have the 26 categorical fields of the Criteo Kaggle data with its
// numbers of categories, scaled to --rows. The logarithm of a category is uniform, so that few
// categories are frequent and most are rare, as in real clicks. Labels are drawn from a hidden
// model with a weight for each category and products of pairs of fields. The same flags give the
// same samples.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/status_macros.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(std::string, shape, "", "criteo or flights");
ABSL_FLAG(std::string, out, "", "an existing folder for the files");
ABSL_FLAG(uint64_t, rows, 12000000, "criteo: the number of categories of all fields");
ABSL_FLAG(uint64_t, train_samples, 2500000, "criteo: samples to train on");
ABSL_FLAG(uint64_t, test_samples, 250000, "criteo: samples to evaluate");
ABSL_FLAG(uint64_t, seed, 7, "criteo: the seed of the samples and of the hidden model");
ABSL_FLAG(std::string, train, "", "flights: the CSV file of deploy/data/fetch to train on");
ABSL_FLAG(std::string, test, "", "flights: the CSV file to evaluate");

namespace pawl {
namespace {

// Categories of the fields C1 to C26 of the Criteo Kaggle data.
constexpr std::array<uint64_t, 26> kCriteoCategories = {
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};
// Smaller fields are not scaled. Larger ones keep at least this many categories.
constexpr uint64_t kMinCategories = 1000;

// The hidden model: logit = kBias + sum of weights + sum over kPairs pairs of dot products.
constexpr double kBias = -1.1;
constexpr double kWeightStddev = 0.3;
constexpr size_t kPairs = 13;  // Field f is paired with field f + 13.
constexpr size_t kFactors = 4;
constexpr double kFactorStddev = 0.45;

// The fields of deploy/jobs/flights-deepfm.pbtxt.
constexpr size_t kFlightsFields = 8;
constexpr double kLateMinutes = 15;
constexpr int kDistanceBucket = 100;

// SplitMix64 (Steele, Lea and Flood 2014): a function from integers to well mixed ones.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double Uniform(uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

// Roughly normal with a standard deviation of 1: the sum of four uniform numbers.
double Normal(uint64_t hash) {
  double sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<double>((hash >> (16 * part)) & 0xffff);
  return (sum / 65536 - 2) * std::sqrt(3.0);
}

// Writes samples to the files of one split.
class SplitWriter {
 public:
  SplitWriter(const std::string& path, bool with_text)
      : path_(path),
        rows_(path + ".rows", std::ios::binary),
        labels_(path + ".labels", std::ios::binary) {
    if (with_text) text_.open(path + ".libsvm", std::ios::binary);
  }

  void Add(const std::vector<uint32_t>& rows, bool label) {
    const float number = label ? 1 : 0;
    rows_.write(reinterpret_cast<const char*>(rows.data()),
                static_cast<std::streamsize>(rows.size() * sizeof(uint32_t)));
    labels_.write(reinterpret_cast<const char*>(&number), sizeof(number));
    ++samples_;
    if (!text_.is_open()) return;
    line_.assign(label ? "1" : "0");
    for (const uint32_t row : rows) {
      std::array<char, 16> digits;
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), row).ptr;
      line_.append(" ").append(digits.data(), end).append(":1");
    }
    line_.append("\n");
    text_.write(line_.data(), static_cast<std::streamsize>(line_.size()));
  }

  // The number of samples.
  absl::StatusOr<uint64_t> Finish() {
    rows_.close();
    labels_.close();
    if (text_.is_open()) text_.close();
    if (!rows_ || !labels_ || !text_)
      return absl::UnavailableError(absl::StrCat(path_, ".*: cannot be written"));
    return samples_;
  }

 private:
  const std::string path_;
  std::ofstream rows_;
  std::ofstream labels_;
  std::ofstream text_;
  std::string line_;
  uint64_t samples_ = 0;
};

absl::Status WriteDescription(const std::string& folder, const std::vector<uint64_t>& field_rows,
                              uint64_t train, uint64_t test) {
  const nlohmann::ordered_json description = {
      {"field_rows", field_rows}, {"train", train}, {"test", test}};
  std::ofstream file(folder + "/data.json");
  file << description.dump(2) << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(folder, "/data.json: cannot be written"));
  return absl::OkStatus();
}

// Samples of the shape of Criteo's.
class CriteoSource {
 public:
  CriteoSource(uint64_t rows, uint64_t seed) : seed_(seed) {
    uint64_t small = 0;
    uint64_t large = 0;
    for (const uint64_t categories : kCriteoCategories)
      (categories <= kMinCategories ? small : large) += categories;
    const double scale =
        (static_cast<double>(rows) - static_cast<double>(small)) / static_cast<double>(large);
    for (const uint64_t categories : kCriteoCategories) {
      const auto scaled =
          static_cast<uint64_t>(std::llround(static_cast<double>(categories) * scale));
      first_row_.push_back(first_row_.empty() ? 0 : first_row_.back() + field_rows_.back());
      field_rows_.push_back(
          categories <= kMinCategories ? categories : std::max<uint64_t>(kMinCategories, scaled));
    }
    sample_.resize(field_rows_.size());
  }

  const std::vector<uint64_t>& field_rows() const { return field_rows_; }

  absl::StatusOr<uint64_t> Write(const std::string& path, uint64_t first, uint64_t count) {
    SplitWriter writer(path, /*with_text=*/true);
    for (uint64_t number = first; number < first + count; ++number) {
      for (size_t field = 0; field < field_rows_.size(); ++field) {
        const double uniform = Uniform(Hash(1, number * field_rows_.size() + field));
        const double count_of_field = static_cast<double>(field_rows_[field]);
        const auto category =
            static_cast<uint64_t>(std::exp(uniform * std::log(count_of_field + 1)) - 1);
        sample_[field] =
            static_cast<uint32_t>(first_row_[field] + std::min(category, field_rows_[field] - 1));
      }
      const double click = 1 / (1 + std::exp(-Logit()));
      writer.Add(sample_, Uniform(Hash(2, number)) < click);
    }
    return writer.Finish();
  }

 private:
  uint64_t Hash(uint64_t stream, uint64_t number) const {
    return Mix(Mix(seed_ * 64 + stream) ^ number);
  }

  double Logit() const {
    double logit = kBias;
    for (const uint32_t row : sample_) logit += kWeightStddev * Normal(Hash(3, row));
    for (size_t pair = 0; pair < kPairs; ++pair) {
      double dot = 0;
      for (size_t k = 0; k < kFactors; ++k)
        dot += Normal(Hash(4 + k, sample_[pair])) * Normal(Hash(4 + k, sample_[pair + kPairs]));
      logit += kFactorStddev * kFactorStddev * dot;
    }
    return logit;
  }

  const uint64_t seed_;
  std::vector<uint64_t> field_rows_;
  std::vector<uint64_t> first_row_;
  std::vector<uint32_t> sample_;
};

absl::Status MakeCriteo(const std::string& folder, uint64_t rows, uint64_t train_samples,
                        uint64_t test_samples, uint64_t seed) {
  uint64_t smallest = 0;
  for (const uint64_t categories : kCriteoCategories)
    smallest += std::min(categories, kMinCategories);
  if (rows < smallest || rows > uint64_t{1} << 31)
    return absl::InvalidArgumentError(
        absl::StrCat("--rows must be from ", smallest, " to 2147483648"));
  CriteoSource source(rows, seed);
  PAWL_ASSIGN_OR_RETURN(const uint64_t train, source.Write(folder + "/train", 0, train_samples));
  PAWL_ASSIGN_OR_RETURN(const uint64_t test,
                        source.Write(folder + "/test", train_samples, test_samples));
  return WriteDescription(folder, source.field_rows(), train, test);
}

// The flights with a number for each category of a field, in the order of their first appearance.
class FlightsReader {
 public:
  struct Split {
    std::vector<std::array<uint32_t, kFlightsFields>> categories;
    std::vector<bool> late;
  };

  absl::StatusOr<Split> Read(const std::string& path) {
    std::ifstream file(path);
    if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
    Split split;
    std::string line;
    std::getline(file, line);
    if (line != "delay,hour,weekday,origin,destination,distance")
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": its first line is not that of deploy/data/fetch"));
    for (uint64_t number = 2; std::getline(file, line); ++number) {
      const std::vector<absl::string_view> values = absl::StrSplit(line, ',');
      double delay = 0;
      int distance = 0;
      if (values.size() != 6 || !absl::SimpleAtod(values[0], &delay) ||
          !absl::SimpleAtoi(values[5], &distance))
        return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": cannot be parsed"));
      const auto& [hour, weekday, origin, destination] =
          std::array{values[1], values[2], values[3], values[4]};
      split.categories.push_back({Number(0, hour), Number(1, weekday), Number(2, origin),
                                  Number(3, destination),
                                  Number(4, absl::StrCat(distance / kDistanceBucket)),
                                  Number(5, absl::StrCat(origin, ",", destination)),
                                  Number(6, absl::StrCat(origin, ",", hour)),
                                  Number(7, absl::StrCat(destination, ",", hour))});
      split.late.push_back(delay > kLateMinutes);
    }
    return split;
  }

  std::vector<uint64_t> field_rows() const {
    std::vector<uint64_t> result;
    for (const auto& numbers : numbers_) result.push_back(numbers.size());
    return result;
  }

 private:
  uint32_t Number(size_t field, absl::string_view category) {
    auto& numbers = numbers_[field];
    return numbers.try_emplace(std::string(category), static_cast<uint32_t>(numbers.size()))
        .first->second;
  }

  std::array<std::unordered_map<std::string, uint32_t>, kFlightsFields> numbers_;
};

absl::StatusOr<uint64_t> WriteFlights(const std::string& path, const FlightsReader::Split& split,
                                      const std::vector<uint64_t>& field_rows) {
  SplitWriter writer(path, /*with_text=*/false);
  std::vector<uint32_t> sample(kFlightsFields);
  for (size_t i = 0; i < split.late.size(); ++i) {
    uint64_t first_row = 0;
    for (size_t field = 0; field < kFlightsFields; ++field) {
      sample[field] = static_cast<uint32_t>(first_row + split.categories[i][field]);
      first_row += field_rows[field];
    }
    writer.Add(sample, split.late[i]);
  }
  return writer.Finish();
}

absl::Status MakeFlights(const std::string& folder, const std::string& train_file,
                         const std::string& test_file) {
  FlightsReader reader;
  PAWL_ASSIGN_OR_RETURN(const FlightsReader::Split train, reader.Read(train_file));
  PAWL_ASSIGN_OR_RETURN(const FlightsReader::Split test, reader.Read(test_file));
  const std::vector<uint64_t> field_rows = reader.field_rows();
  PAWL_ASSIGN_OR_RETURN(const uint64_t train_samples,
                        WriteFlights(folder + "/train", train, field_rows));
  PAWL_ASSIGN_OR_RETURN(const uint64_t test_samples,
                        WriteFlights(folder + "/test", test, field_rows));
  return WriteDescription(folder, field_rows, train_samples, test_samples);
}

absl::Status Make() {
  const std::string shape = absl::GetFlag(FLAGS_shape);
  const std::string folder = absl::GetFlag(FLAGS_out);
  if (folder.empty()) return absl::InvalidArgumentError("--out is missing");
  if (shape == "criteo")
    return MakeCriteo(folder, absl::GetFlag(FLAGS_rows), absl::GetFlag(FLAGS_train_samples),
                      absl::GetFlag(FLAGS_test_samples), absl::GetFlag(FLAGS_seed));
  if (shape == "flights")
    return MakeFlights(folder, absl::GetFlag(FLAGS_train), absl::GetFlag(FLAGS_test));
  return absl::InvalidArgumentError("--shape must be criteo or flights");
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("makes the data sets of deploy/bench");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = pawl::Make();
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_data: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}
