// Named places at which a test can make a process die, stop for a while, or fail.
//
//   PAWL_FAILPOINT("log.synced");                                            // can crash or pause
//   here if (PAWL_FAILPOINT("log.sync")) return absl::DataLossError("...");       // and can also
//   fail
//
// A name is lower case, "part.moment", and stands once in the code. In what users run,
// FailpointHit is the function of failpoint.cc, which does nothing, reads nothing and cannot be
// made to do anything from outside. A test binary that links :failpoint_control has another one
// (failpoint_control.h), also for the libraries that were built without knowing of it: both link
// the same objects.
#ifndef PAWL_CLIENT_LIB_BASE_FAILPOINT_H_
#define PAWL_CLIENT_LIB_BASE_FAILPOINT_H_

namespace pawl {

// True if a test wants the caller to fail here. A call of a function and nothing more when not
// under test: not for loops over rows. Thread-safe; may sleep, so hold no lock that others need to
// make progress, unless that is the test.
bool FailpointHit(const char* name);

}  // namespace pawl

#define PAWL_FAILPOINT(name) ::pawl::FailpointHit(name)

#endif  // PAWL_CLIENT_LIB_BASE_FAILPOINT_H_
