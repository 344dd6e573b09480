// The tables in which a model looks up the categorical fields of a sample.
#ifndef PAWL_CLIENT_LIB_JOB_FIELD_LAYOUT_H_
#define PAWL_CLIENT_LIB_JOB_FIELD_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace pawl {

// How the vectors of a field's entries are combined. kNone: they stay apart.
enum class FieldPooling { kSum, kMean, kMax, kNone };

struct FieldLayout {
  // The keys of one embedding table.
  struct KeySet {
    // The table's name.
    std::string name;
    // 0, 0 and none: as the model says.
    uint32_t dim = 0;
    float init_stddev = 0;
    std::optional<Optimizer> optimizer;
  };
  // Fields that are looked up in the same table and pooled alike.
  struct FieldSet {
    size_t key_set = 0;
    FieldPooling pooling = FieldPooling::kSum;
    // Ascending, at least one. With kNone there is one.
    std::vector<uint32_t> fields;
  };
  struct Place {
    size_t field_set = 0;
    size_t index = 0;  // in its fields
  };

  // A history and the field to which it is compared, which is pooled, from the same key set.
  struct Attention {
    Place history;
    Place target;
  };

  // All fields in one table, summed.
  static FieldLayout Single(uint32_t field_count);

  // Whether all fields are in one set, and their vectors are summed.
  bool is_single() const {
    return field_sets.size() == 1 && field_sets[0].pooling == FieldPooling::kSum;
  }
  // REQUIRES: the layout has the field.
  Place PlaceOf(uint32_t field) const;

  std::vector<KeySet> key_sets;
  // Each field is in one of them. The sets of a key set are adjacent, in the order of the key sets;
  // its histories follow the others, in the order of their attention.
  std::vector<FieldSet> field_sets;
  // As in the model's attention.
  std::vector<Attention> attentions;
};

// The layout that model.features, and the attention of a model, ask for. The fields that no entry
// names share the table "embedding", which comes first. INVALID_ARGUMENT naming the field of the
// job file. REQUIRES: the columns of `data` are valid (ValidateData).
absl::StatusOr<FieldLayout> FieldLayoutOf(const Data& data, const Model& model,
                                          uint32_t field_count);

// The width of the key set's vectors in a model of width `dim`.
inline uint32_t DimOf(const FieldLayout::KeySet& key_set, uint32_t dim) {
  return key_set.dim == 0 ? dim : key_set.dim;
}

// For a model that multiplies vectors with each other. INVALID_ARGUMENT, naming model.features, if
// a table's vectors do not have the model's width.
absl::Status CheckOneDim(const FieldLayout& layout, uint32_t dim);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_FIELD_LAYOUT_H_
