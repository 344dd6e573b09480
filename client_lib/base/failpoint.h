// Named places at which a test can make a process crash, pause or fail.
//
//   PAWL_FAILPOINT("log.synced");  // can crash or pause
//   if (PAWL_FAILPOINT("log.sync")) return absl::DataLossError("...");  // can also fail
//
// A name has the form "part.moment", in lower case, and occurs once in the code. In production
// binaries FailpointHit is the function of failpoint.cc, which always returns false and reads
// nothing. A test binary that links testing:failpoint_control replaces this function at link time,
// so production and test binaries use the same objects.
#ifndef PAWL_CLIENT_LIB_BASE_FAILPOINT_H_
#define PAWL_CLIENT_LIB_BASE_FAILPOINT_H_

namespace pawl {

// Returns true if a test wants the caller to fail here. In production it costs a function call, so
// do not use it in loops over rows. It may sleep: hold no lock that others need, unless that is the
// test. Thread-safe.
bool FailpointHit(const char* name);

}  // namespace pawl

#define PAWL_FAILPOINT(name) ::pawl::FailpointHit(name)

#endif  // PAWL_CLIENT_LIB_BASE_FAILPOINT_H_
