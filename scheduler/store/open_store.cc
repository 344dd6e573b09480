#include "scheduler/store/open_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "scheduler/store/etcd_store.h"
#include "scheduler/store/file_store.h"

namespace pawl {
namespace {

// Members are tried in turn within one call's time; etcd itself advises at most seven.
constexpr size_t kMaxEndpoints = 9;
constexpr size_t kMaxPrefixBytes = 256;

absl::Status CheckEndpoint(absl::string_view endpoint) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(endpoint);
  PAWL_RETURN_IF_ERROR(parsed.status());
  // An address of IPv6 is in brackets.
  const bool bracketed = absl::StartsWith(parsed->host, "[");
  for (const char c : parsed->host) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '-' && c != '_' &&
        !(bracketed && (c == ':' || c == '[' || c == ']'))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", endpoint, "' has a host with the character '", absl::string_view(&c, 1), "'"));
    }
  }
  if (parsed->port == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("'", endpoint, "' has no port between 1 and 65535"));
  return absl::OkStatus();
}

absl::Status CheckPrefix(absl::string_view prefix) {
  const auto is_allowed = [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-' || c == '/';
  };
  if (prefix.empty() || prefix.size() > kMaxPrefixBytes || absl::StartsWith(prefix, "/") ||
      absl::EndsWith(prefix, "/") || absl::StrContains(prefix, "//") ||
      !std::all_of(prefix.begin(), prefix.end(), is_allowed)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prefix '", prefix, "' is not 1 to ", kMaxPrefixBytes,
        " letters, digits, '.', '_', '-' and single '/' between them, such as pawl/my-job"));
  }
  return absl::OkStatus();
}

absl::StatusOr<EtcdStoreOptions> ParseEtcd(absl::string_view rest) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(rest, absl::MaxSplits('/', 1));
  EtcdStoreOptions options;
  options.endpoints = absl::StrSplit(parts.first, ',');
  if (options.endpoints.size() > kMaxEndpoints) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", options.endpoints.size(),
                                                   " endpoints; the limit is ", kMaxEndpoints));
  }
  for (const std::string& endpoint : options.endpoints)
    PAWL_RETURN_IF_ERROR(CheckEndpoint(endpoint));
  PAWL_RETURN_IF_ERROR(CheckPrefix(parts.second));
  options.prefix = std::string(parts.second);
  return options;
}

absl::Status Wrong(absl::string_view place, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("the store '", place, "': ", why,
                   "; it is DIR, file:DIR or etcd://HOST:PORT[,HOST:PORT...]/PREFIX"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> OpenStore(absl::string_view place,
                                                      const StoreSecurity& security) {
  absl::string_view rest = place;
  if (absl::ConsumePrefix(&rest, "etcd://")) {
    absl::StatusOr<EtcdStoreOptions> options = ParseEtcd(rest);
    if (!options.ok()) return Wrong(place, options.status().message());
    options->tls_dir = security.etcd_tls_dir;
    PAWL_RETURN_IF_ERROR(Annotate(CheckEtcdTlsDir(options->tls_dir), "--etcd_tls_dir"));
    for (const std::string& endpoint : options->endpoints) {
      if (!options->tls_dir.empty() || security.insecure ||
          IsLoopback(ParseHostPort(endpoint)->host))
        continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "etcd at ", endpoint,
          " is not on this machine, and the state would travel neither encrypted nor "
          "authenticated; set --etcd_tls_dir=FOLDER, or --insecure on a trusted network"));
    }
    return std::make_unique<EtcdStore>(*std::move(options));
  }
  if (!security.etcd_tls_dir.empty())
    return Wrong(place, "--etcd_tls_dir is set, and this is not in etcd");
  if (const size_t scheme_end = rest.find("://"); scheme_end != absl::string_view::npos) {
    return Wrong(place, absl::StrCat("there is no '", rest.substr(0, scheme_end + 3), "'"));
  }
  absl::ConsumePrefix(&rest, "file:");
  if (rest.empty()) return Wrong(place, "the directory's name is empty");
  return std::make_unique<FileStore>(FileStoreOptions{std::string(rest)});
}

}  // namespace pawl
