#include "deploy/pawlctl/commands/connection_flags.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

void AddJsonFlag(CLI::App& command, bool& json) {
  AddSwitch(command, "--json", json, "Print JSON for programs instead of text for people.");
}

void AddTlsFlags(CLI::App& command, SecurityOptions& options) {
  AddFlag(command, "--tls_dir", "FOLDER", options.tls_dir,
          "Folder with a certificate (cert.pem, key.pem) and the authorities that it trusts\n"
          "(ca.pem); changing a job needs the role operator. Default: the environment's\n"
          "PAWL_TLS_DIR.");
  AddFlag(command, "--token_file", "FILE", options.token_file,
          "Instead of a certificate: a file with a token (pawlctl token). The environment's\n"
          "PAWL_TOKEN has the token itself, and counts unless --token_file or a --tls_dir with a\n"
          "certificate is given.");
  AddFlag(command, "--ca", "FILE", options.authorities_file,
          "With a token: the authorities of the scheduler's certificate; default: ca.pem in\n"
          "--tls_dir or PAWL_TLS_DIR.");
  AddSwitch(command, "--insecure", options.insecure,
            "Without --tls_dir, PAWL_TLS_DIR and a token: connect to other machines, neither\n"
            "encrypted nor authenticated.");
}

absl::Status OpenSecurity(ConnectionOptions& options, absl::string_view flag,
                          const std::string& address) {
  if (!absl::StrContains(address, ':')) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", address, " has no port: HOST:PORT is needed"));
  }
  PAWL_ASSIGN_OR_RETURN(
      options.security,
      Security::Open(WithEnvironmentOrToken(options.security_options), kAllRoles));
  return options.security->CheckAddresses(flag, address);
}

void AddSchedulerFlags(CLI::App& command, ConnectionOptions& options) {
  AddFlag(command, "--scheduler", "HOST:PORT", options.scheduler,
          "The address of the job's scheduler; default: the environment's PAWL_SCHEDULER. pawlctl\n"
          "run writes it to scheduler.addr in its --out.",
          {.required = true, .environment = "PAWL_SCHEDULER"});
  AddTlsFlags(command, options.security_options);
  // Not while the flag is parsed: CLI11 reads the environment for all commands.
  SetCheck(command, [&options] { return OpenSecurity(options, "scheduler", options.scheduler); });
  AddJsonFlag(command, options.json);
}

void AddTimeoutFlag(CLI::App& command, ConnectionOptions& options) {
  AddFlag(command, "--timeout", "DURATION", options.timeout,
          "How long to wait for the answer; default: 5s.");
}

void AddConnectionFlags(CLI::App& command, ConnectionOptions& options) {
  AddSchedulerFlags(command, options);
  AddTimeoutFlag(command, options);
}

}  // namespace pawl
