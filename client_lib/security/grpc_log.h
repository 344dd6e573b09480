// gRPC's own log lines in the log of the process.
#ifndef PAWL_CLIENT_LIB_SECURITY_GRPC_LOG_H_
#define PAWL_CLIENT_LIB_SECURITY_GRPC_LOG_H_

namespace pawl {

// From now on gRPC's errors, such as failed handshakes, are warnings of this process's log, at most
// kMaxRefusalsLoggedPerSecond (rate_limiter.h) in a second: strangers cannot fill the log. A line
// that gRPC 1.51 writes for every client whose target is an address is left out.
void LogGrpcErrors();

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_GRPC_LOG_H_
