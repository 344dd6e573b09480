#include "client_lib/job/group_field.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"

namespace pawl {
namespace {

bool IsField(const Column& column) {
  return column.has_bucketized() || column.has_categorical() || column.has_hashed() ||
         column.has_crossed();
}

// `list`: the field of the job that has the columns.
absl::StatusOr<uint32_t> ColumnField(const google::protobuf::RepeatedPtrField<Column>& columns,
                                     absl::string_view list, const std::string& name,
                                     absl::string_view setting) {
  uint32_t field = 0;
  for (const Column& column : columns) {
    if (column.name() == name) {
      if (IsField(column)) return field;
      return absl::InvalidArgumentError(
          absl::StrCat(setting, " is \"", name, "\", a column of ", list,
                       " that is not categorical; make it bucketized, categorical, hashed or "
                       "crossed, or name another one"));
    }
    field += IsField(column);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(setting, " is \"", name, "\", which ", list, " does not have"));
}

}  // namespace

absl::StatusOr<uint32_t> FieldNamed(const Data& data, const std::string& name,
                                    absl::string_view setting) {
  if (data.format() == CSV)
    return ColumnField(data.csv().columns(), "data.csv.columns", name, setting);
  if (data.format() == TFRECORD || data.format() == RECORDS)
    return ColumnField(data.records().columns(), "data.records.columns", name, setting);
  if (data.format() != LIBSVM) {
    return absl::InvalidArgumentError(absl::StrCat(setting, " is set, but data.format ",
                                                   DataFormat_Name(data.format()),
                                                   " has no categorical fields"));
  }
  uint32_t field = 0;
  const uint32_t fields = data.libsvm_fields() == 0 ? kMaxFields : data.libsvm_fields();
  if (absl::SimpleAtoi(name, &field) && field < fields) return field;
  return absl::InvalidArgumentError(
      absl::StrCat(setting, " is \"", name,
                   "\"; with LIBSVM it must be the number of a field, from 0 to ", fields - 1));
}

std::vector<std::string> LabelNames(const Data& data) {
  std::vector<std::string> names;
  for (const auto* const columns : {&data.csv().columns(), &data.records().columns()}) {
    for (const Column& column : *columns) {
      if (column.has_label()) names.push_back(column.name());
    }
  }
  return names;
}

absl::StatusOr<GroupKey> FindGroupKey(const Data& data, const std::string& group_by) {
  if (data.format() == LIBSVM && group_by == "qid") return GroupKey{.is_query_id = true};
  for (const auto* const columns : {&data.csv().columns(), &data.records().columns()}) {
    for (const Column& column : *columns) {
      if (column.name() != group_by || !column.has_list()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("evaluation.group_by is \"", group_by,
                       "\", a list; a sample belongs to one group, so name another column"));
    }
  }
  const absl::StatusOr<uint32_t> field = FieldNamed(data, group_by, "evaluation.group_by");
  if (field.ok()) return GroupKey{.field = *field};
  if (data.format() != LIBSVM) return field.status();
  return absl::InvalidArgumentError(absl::StrCat(field.status().message(), ", or \"qid\""));
}

}  // namespace pawl
