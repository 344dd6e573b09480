// Early return of absl::Status, and context for its message.
//
//   PAWL_RETURN_IF_ERROR(file.Append(record));
//   PAWL_ASSIGN_OR_RETURN(const Job job, ReadJobFile(path));
#ifndef PAWL_CLIENT_LIB_BASE_STATUS_MACROS_H_
#define PAWL_CLIENT_LIB_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pawl {

// Prefixes the message of a non-OK `status` with "context: ". Keeps the payloads.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

}  // namespace pawl

#define PAWL_STATUS_MACROS_CONCAT_INNER(a, b) a##b
#define PAWL_STATUS_MACROS_CONCAT(a, b) PAWL_STATUS_MACROS_CONCAT_INNER(a, b)

#define PAWL_RETURN_IF_ERROR(expression)                                                \
  do {                                                                                  \
    if (absl::Status pawl_status = (expression); !pawl_status.ok()) return pawl_status; \
  } while (false)

#define PAWL_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return std::move(result).status();              \
  declaration = *std::move(result)

#define PAWL_ASSIGN_OR_RETURN(declaration, expression)                                       \
  PAWL_ASSIGN_OR_RETURN_IMPL(PAWL_STATUS_MACROS_CONCAT(pawl_result_, __LINE__), declaration, \
                             expression)

#endif  // PAWL_CLIENT_LIB_BASE_STATUS_MACROS_H_
