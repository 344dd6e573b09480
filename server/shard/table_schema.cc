#include "server/shard/table_schema.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client_lib/base/elements.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/table_validation.h"
#include "server/optimizer/math/finite.h"

namespace pawl {
namespace {

absl::Status Invalid(const TableSpec& spec, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("table '", spec.name(), "': ", problem));
}

bool AllElementsFinite(ElementType type, const char* data, size_t count) {
  if (type == BFLOAT16) return AllHalvesFinite(data, count, /*fraction_bits=*/7);
  if (type == FLOAT16) return AllHalvesFinite(data, count, /*fraction_bits=*/10);
  return AllFinite(data, count);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TableSchema>> TableSchema::Create(const TableSpec& spec,
                                                                       uint64_t job_seed) {
  std::shared_ptr<TableSchema> table(new TableSchema());
  table->spec_ = spec;
  PAWL_RETURN_IF_ERROR(ValidateTableSpec(spec));
  if (spec.id() == 0) return Invalid(spec, "id is 0; the scheduler assigns ids from 1");
  if (spec.element_type() != FLOAT32) return Invalid(spec, "element_type must be FLOAT32");
  if (table->is_dense()) {
    table->elements_ = 1;
    for (const uint64_t size : spec.shape()) table->elements_ *= size;
    table->block_count_ = pawl::BlockCount(table->elements_);
    table->max_row_width_ = std::min(table->elements_, kBlockElements);
  } else {
    table->max_row_width_ = spec.row_width();
  }
  PAWL_ASSIGN_OR_RETURN(table->rule_, UpdateRule::Create(spec.optimizer()));
  PAWL_ASSIGN_OR_RETURN(table->initializer_, TableInitializer::Create(spec, job_seed));
  return table;
}

void TableSchema::CopySlots(size_t width, const float* state, float* out) const {
  const size_t floats = StateFloats(width);
  std::copy(state, state + floats, out);
  if (!counts_updates()) return;
  uint32_t updates;
  std::memcpy(&updates, &state[floats - 1], sizeof(updates));
  out[floats - 1] = static_cast<float>(updates);
}

size_t TableSchema::RowWidth(uint64_t key) const {
  if (!is_dense()) return max_row_width_;
  return BlockElements(elements_, key);
}

absl::Status TableSchema::CheckKeys(const ByteView& keys, uint32_t partition, uint32_t partitions,
                                    size_t& value_bytes) const {
  if (keys.size() % sizeof(uint64_t) != 0) {
    return Invalid(spec_, absl::StrCat("keys are ", keys.size(), " bytes, not a multiple of 8"));
  }
  absl::Status status;
  size_t elements = 0;
  char scratch[sizeof(uint64_t)];
  keys.ForEachRun(sizeof(uint64_t), scratch, [&](const char* data, size_t count) {
    if (!status.ok()) return;
    for (size_t i = 0; i < count; ++i) {
      uint64_t key;
      std::memcpy(&key, data + i * sizeof(key), sizeof(key));
      if (is_dense() && key >= block_count_) {
        status = absl::OutOfRangeError(absl::StrCat("table '", spec_.name(), "' has ", block_count_,
                                                    " blocks, but no block ", key));
        return;
      }
      if (const uint32_t right = PartitionOf(id(), key, partitions); right != partition) {
        status = Invalid(
            spec_, absl::StrCat("key ", key, " belongs to partition ", right, ", not ", partition));
        return;
      }
      if (is_dense()) elements += RowWidth(key);
    }
    if (!is_dense()) elements += count * max_row_width_;
  });
  value_bytes = elements * sizeof(float);
  return status;
}

absl::Status TableSchema::CheckGradient(ElementType element_type, int32_t exponent,
                                        const ByteView& keys, const ByteView& values,
                                        uint32_t partition, uint32_t partitions) const {
  return CheckValues("the gradient", element_type, exponent, keys, values, partition, partitions);
}

absl::Status TableSchema::CheckAssignment(ElementType element_type, int32_t exponent,
                                          const Assignment& assignment, uint32_t partition,
                                          uint32_t partitions) const {
  PAWL_RETURN_IF_ERROR(CheckValues("the assignment", element_type, exponent, assignment.keys,
                                   assignment.values, partition, partitions));
  std::vector<uint64_t> keys(assignment.keys.size() / sizeof(uint64_t));
  assignment.keys.CopyTo(keys.data());
  PAWL_RETURN_IF_ERROR(CheckSlots(assignment, keys));
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end())
    return Invalid(spec_, absl::StrCat("the assignment has key ", *twice, " twice"));
  return absl::OkStatus();
}

absl::Status TableSchema::CheckSlots(const Assignment& assignment,
                                     const std::vector<uint64_t>& keys) const {
  if (assignment.effect != Assignment::Slots::kGiven) {
    if (assignment.slots.empty()) return absl::OkStatus();
    return Invalid(spec_, "slots are given, but only ASSIGN_WITH_SLOTS takes them");
  }
  size_t bytes = 0;
  for (const uint64_t key : keys) bytes += StateFloats(RowWidth(key)) * sizeof(float);
  if (assignment.slots.size() != bytes) {
    return Invalid(spec_, absl::StrCat("slots are ", assignment.slots.size(), " bytes; ",
                                       keys.size(), " keys need ", bytes));
  }
  ByteCursor slots(assignment.slots);
  std::vector<float> state(StateFloats(max_row_width_));
  for (const uint64_t key : keys) {
    const size_t width = RowWidth(key);
    const size_t floats = StateFloats(width);
    slots.Read(state.data(), floats * sizeof(float));
    const auto invalid = [&](absl::string_view problem) {
      return Invalid(spec_, absl::StrCat("the slots of key ", key, " have ", problem));
    };
    if (!AllFinite(reinterpret_cast<const char*>(state.data()), floats))
      return invalid("a NaN or an infinity");
    const UpdateRule::SlotRange squares = rule_->SquareSlots(width);
    if (std::any_of(state.data() + squares.begin, state.data() + squares.begin + squares.count,
                    [](float square) { return square < 0; })) {
      return invalid("a negative sum or mean of squares");
    }
    if (!counts_updates()) continue;
    if (const float updates = state[floats - 1]; !Assignment::IsUpdateCount(updates)) {
      return invalid(
          absl::StrCat("the number of updates ", updates, "; it must be whole, 0 to 2^32"));
    }
  }
  return absl::OkStatus();
}

absl::Status TableSchema::CheckValues(absl::string_view what, ElementType element_type,
                                      int32_t exponent, const ByteView& keys,
                                      const ByteView& values, uint32_t partition,
                                      uint32_t partitions) const {
  if (!IsElementType(element_type)) {
    return Invalid(spec_, absl::StrCat("element type ", static_cast<int>(element_type),
                                       " is not FLOAT32, BFLOAT16 or FLOAT16"));
  }
  if (!IsElementExponent(element_type, exponent)) {
    return Invalid(spec_, absl::StrCat("exponent ", exponent, " is invalid; FLOAT16 allows ",
                                       kMinElementExponent, " to ", kMaxElementExponent,
                                       ", other types only 0"));
  }
  size_t value_bytes = 0;
  PAWL_RETURN_IF_ERROR(CheckKeys(keys, partition, partitions, value_bytes));
  const size_t element_bytes = ElementBytes(element_type);
  value_bytes = value_bytes / sizeof(float) * element_bytes;
  if (values.size() != value_bytes) {
    return Invalid(spec_, absl::StrCat("values are ", values.size(), " bytes; ",
                                       keys.size() / sizeof(uint64_t), " keys need ", value_bytes,
                                       ", ", element_bytes, " per element"));
  }
  bool finite = true;
  char scratch[sizeof(float)];
  values.ForEachRun(element_bytes, scratch, [&](const char* data, size_t count) {
    // No exponent makes finite values infinite.
    finite = finite && AllElementsFinite(element_type, data, count);
  });
  if (!finite) return Invalid(spec_, absl::StrCat(what, " has a NaN or an infinity"));
  return absl::OkStatus();
}

}  // namespace pawl
