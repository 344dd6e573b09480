#include "client_lib/job/field_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/group_field.h"
#include "google/protobuf/util/message_differencer.h"

namespace pawl {
namespace {

using google::protobuf::util::MessageDifferencer;

constexpr size_t kMaxTableNameBytes = 64;

absl::Status CheckTable(const std::string& where, const Features& features) {
  const std::string& name = features.table();
  const bool is_name = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (name.empty() || name.size() > kMaxTableNameBytes || !is_name) {
    return absl::InvalidArgumentError(absl::StrCat(where, ".table is \"", name,
                                                   "\"; it must have 1 to ", kMaxTableNameBytes,
                                                   " letters, digits and \"_\""));
  }
  if (features.dim() > kMaxEmbeddingDim) {
    return absl::InvalidArgumentError(absl::StrCat(where, ".dim is ", features.dim(), "; at most ",
                                                   kMaxEmbeddingDim, " are possible"));
  }
  if (!std::isfinite(features.init_stddev()) || features.init_stddev() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ".init_stddev is ", features.init_stddev(), "; it must be finite and at least 0"));
  }
  if (!Pooling_IsValid(features.pooling())) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ".pooling is ", static_cast<int>(features.pooling()), ", which is unknown"));
  }
  if (features.columns().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ".columns is empty; name the categorical columns whose vectors the table has"));
  }
  return absl::OkStatus();
}

FieldPooling PoolingOf(Pooling pooling) {
  if (pooling == MEAN) return FieldPooling::kMean;
  return pooling == MAX ? FieldPooling::kMax : FieldPooling::kSum;
}

// By field: the number of the entry of model.features that names it, or none.
absl::StatusOr<std::vector<std::optional<int>>> EntriesOfFields(const Data& data,
                                                                const Model& model,
                                                                uint32_t field_count) {
  std::vector<std::optional<int>> entries(field_count);
  for (int i = 0; i < model.features_size(); ++i) {
    const std::string where = absl::StrCat("model.features[", i, "]");
    PAWL_RETURN_IF_ERROR(CheckTable(where, model.features(i)));
    for (int c = 0; c < model.features(i).columns_size(); ++c) {
      const std::string setting = absl::StrCat(where, ".columns[", c, "]");
      const std::string& name = model.features(i).columns(c);
      PAWL_ASSIGN_OR_RETURN(const uint32_t field, FieldNamed(data, name, setting));
      if (field >= field_count) {
        return absl::InvalidArgumentError(
            absl::StrCat(setting, " is \"", name, "\", but the data has ", field_count, " fields"));
      }
      if (entries[field].has_value()) {
        return absl::InvalidArgumentError(absl::StrCat(
            setting, " is \"", name, "\", which model.features[", *entries[field], "] has too"));
      }
      entries[field] = i;
    }
  }
  return entries;
}

// The fields whose entries stay apart, in the order of the model's attention.
absl::StatusOr<std::vector<uint32_t>> Histories(const Data& data, const Model& model,
                                                uint32_t field_count) {
  std::vector<uint32_t> histories;
  for (int i = 0; i < model.din().attention_size(); ++i) {
    const std::string where = absl::StrCat("model.din.attention[", i, "].history");
    const std::string& name = model.din().attention(i).history();
    PAWL_ASSIGN_OR_RETURN(const uint32_t field, FieldNamed(data, name, where));
    if (field >= field_count) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " is \"", name, "\", but the data has ", field_count, " fields"));
    }
    if (std::find(histories.begin(), histories.end(), field) != histories.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " is \"", name, "\", as in an earlier entry"));
    }
    histories.push_back(field);
  }
  return histories;
}

// Null: the data has no columns, as LIBSVM data.
const Column* ColumnNamed(const Data& data, const std::string& name) {
  for (const auto* const columns : {&data.csv().columns(), &data.records().columns()}) {
    for (const Column& column : *columns) {
      if (column.name() == name) return &column;
    }
  }
  return nullptr;
}

// A history is a list, its target is none, and both have the same keys.
absl::Status CheckColumns(const Data& data, const Model::Din::Attention& attention,
                          const std::string& where) {
  const Column* const history = ColumnNamed(data, attention.history());
  const Column* const target = ColumnNamed(data, attention.target());
  if (history == nullptr || target == nullptr) return absl::OkStatus();
  if (!history->has_list() || target->has_list()) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": \"", attention.history(), "\" must be a list (`list` of the column), and \"",
        attention.target(), "\", to which its elements are compared, must not"));
  }
  const auto domain = [](const Column& column) {
    return column.domain().empty() ? column.name() : column.domain();
  };
  if (domain(*history) == domain(*target)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": \"", attention.history(), "\" and \"", attention.target(),
      "\" have different keys for the same category; give both columns the same domain"));
}

absl::Status AddAttentions(const Data& data, const Model& model, uint32_t field_count,
                           FieldLayout& layout) {
  for (int i = 0; i < model.din().attention_size(); ++i) {
    const Model::Din::Attention& attention = model.din().attention(i);
    const std::string where = absl::StrCat("model.din.attention[", i, "]");
    PAWL_ASSIGN_OR_RETURN(const uint32_t history, FieldNamed(data, attention.history(), where));
    PAWL_ASSIGN_OR_RETURN(const uint32_t target,
                          FieldNamed(data, attention.target(), absl::StrCat(where, ".target")));
    if (target >= field_count) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".target is \"", attention.target(),
                                                     "\", but the data has ", field_count,
                                                     " fields"));
    }
    layout.attentions.push_back({layout.PlaceOf(history), layout.PlaceOf(target)});
    const FieldLayout::Attention& places = layout.attentions.back();
    const FieldLayout::FieldSet& of_target = layout.field_sets[places.target.field_set];
    if (of_target.pooling == FieldPooling::kNone) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".target is \"", attention.target(),
                                                     "\", which is a history itself"));
    }
    PAWL_RETURN_IF_ERROR(CheckColumns(data, attention, where));
    if (of_target.key_set != layout.field_sets[places.history.field_set].key_set) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": \"", attention.history(), "\" and \"", attention.target(),
          "\" have different tables; put both into the same entries of model.features"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

FieldLayout FieldLayout::Single(uint32_t field_count) {
  FieldLayout layout;
  layout.key_sets.emplace_back().name = "embedding";
  layout.field_sets.emplace_back().fields.resize(field_count);
  std::iota(layout.field_sets[0].fields.begin(), layout.field_sets[0].fields.end(), 0u);
  return layout;
}

FieldLayout::Place FieldLayout::PlaceOf(uint32_t field) const {
  for (size_t set = 0; set < field_sets.size(); ++set) {
    const std::vector<uint32_t>& fields = field_sets[set].fields;
    const auto found = std::lower_bound(fields.begin(), fields.end(), field);
    if (found != fields.end() && *found == field)
      return {set, static_cast<size_t>(found - fields.begin())};
  }
  return {};
}

absl::Status CheckOneDim(const FieldLayout& layout, uint32_t dim) {
  for (const FieldLayout::KeySet& key_set : layout.key_sets) {
    if (DimOf(key_set, dim) == dim) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "model.features: the table ", key_set.name, " has dim ", key_set.dim,
        ", but the model multiplies vectors with each other; all must have its dim, ", dim));
  }
  return absl::OkStatus();
}

absl::StatusOr<FieldLayout> FieldLayoutOf(const Data& data, const Model& model,
                                          uint32_t field_count) {
  if (model.features().empty() && model.din().attention().empty())
    return FieldLayout::Single(field_count);
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::optional<int>> entries,
                        EntriesOfFields(data, model, field_count));
  PAWL_ASSIGN_OR_RETURN(const std::vector<uint32_t> histories, Histories(data, model, field_count));
  std::vector<bool> is_history(field_count);
  for (const uint32_t field : histories) is_history[field] = true;

  FieldLayout layout;
  // By key set: the first entry of model.features that names it, or none.
  std::vector<std::optional<int>> first_entries;
  if (std::find(entries.begin(), entries.end(), std::nullopt) != entries.end()) {
    layout.key_sets.emplace_back().name = "embedding";
    first_entries.push_back(std::nullopt);
  }
  // By entry: its key set.
  std::vector<size_t> key_set_of_entry;
  for (int i = 0; i < model.features_size(); ++i) {
    const Features& features = model.features(i);
    const std::string name = absl::StrCat("embedding/", features.table());
    const auto known = std::find_if(layout.key_sets.begin(), layout.key_sets.end(),
                                    [&](const auto& set) { return set.name == name; });
    key_set_of_entry.push_back(static_cast<size_t>(known - layout.key_sets.begin()));
    if (known == layout.key_sets.end()) {
      FieldLayout::KeySet& set = layout.key_sets.emplace_back();
      set.name = name;
      set.dim = features.dim();
      set.init_stddev = features.init_stddev();
      if (features.has_optimizer()) set.optimizer = features.optimizer();
      first_entries.push_back(i);
      continue;
    }
    const Features& first = model.features(*first_entries[key_set_of_entry.back()]);
    if (first.dim() != features.dim() || first.init_stddev() != features.init_stddev() ||
        !MessageDifferencer::Equals(first.optimizer(), features.optimizer())) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.features[", i, "] has the table of model.features[",
                       *first_entries[key_set_of_entry.back()],
                       "], but another dim, init_stddev or optimizer; give both the same"));
    }
  }

  for (size_t key_set = 0; key_set < layout.key_sets.size(); ++key_set) {
    const size_t first_set = layout.field_sets.size();
    const auto belongs = [&](uint32_t field) {
      return (entries[field].has_value() ? key_set_of_entry[*entries[field]] : 0) == key_set;
    };
    for (uint32_t field = 0; field < field_count; ++field) {
      if (!belongs(field) || is_history[field]) continue;
      const FieldPooling pooling = entries[field].has_value()
                                       ? PoolingOf(model.features(*entries[field]).pooling())
                                       : FieldPooling::kSum;
      const auto set = std::find_if(
          layout.field_sets.begin() + static_cast<ptrdiff_t>(first_set), layout.field_sets.end(),
          [&](const FieldLayout::FieldSet& known) { return known.pooling == pooling; });
      if (set != layout.field_sets.end()) {
        set->fields.push_back(field);
      } else {
        layout.field_sets.push_back({key_set, pooling, {field}});
      }
    }
    for (const uint32_t field : histories) {
      const std::optional<int> entry = entries[field];
      if (entry.has_value() && PoolingOf(model.features(*entry).pooling()) != FieldPooling::kSum) {
        return absl::InvalidArgumentError(absl::StrCat(
            "model.features[", *entry, "].pooling is ",
            Pooling_Name(model.features(*entry).pooling()),
            ", but one of its columns is a history, which is summed by attention; leave it out"));
      }
      if (belongs(field)) layout.field_sets.push_back({key_set, FieldPooling::kNone, {field}});
    }
  }
  PAWL_RETURN_IF_ERROR(AddAttentions(data, model, field_count, layout));
  return layout;
}

}  // namespace pawl
