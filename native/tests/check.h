// A test runner in one header.
//
//   TEST_CASE(free_twice_is_refused) { ... CHECK_EQ(aclrtFree(p), 0); ... }
//   TEST_MAIN()
//
// Every case runs in a child process of its own, because what we test is per process (aclInit, a fault
// handler, leaks at exit) and often ends in abort(). A case passes when its child exits 0 without a failed
// check. `prog --list` prints the names, `prog NAME...` runs those, `prog --no-fork NAME` stays in one
// process for a debugger. EXPECT_DEATH runs a body in a further child and demands SIGABRT and a text.
#pragma once

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <type_traits>
#include <unistd.h>
#include <vector>

namespace check {

constexpr unsigned kCaseTimeoutSeconds = 240;

struct Case {
    const char * name;
    void (*body)();
};

inline std::vector<Case> & cases() {
    static std::vector<Case> all;
    return all;
}

inline int & failures() {
    static int n = 0;
    return n;
}

struct Registrar {
    Registrar(const char * name, void (*body)()) { cases().push_back({name, body}); }
};

inline void report(const char * file, int line, const std::string & what) {
    ++failures();
    std::fprintf(stderr, "%s:%d: FAILED: %s\n", file, line, what.c_str());
}

template <typename T> std::string show(const T & value) {
    std::ostringstream out;
    if constexpr (std::is_enum_v<T>) {
        out << static_cast<long long>(value);
    } else {
        out << value;
    }
    return out.str();
}

// How a child ended, and everything it wrote to stderr.
struct Ending {
    int signal      = 0;
    int exit_status = 0;
    std::string output;
};

inline Ending run_child(const std::function<void()> & body) {
    int ends[2] = {-1, -1};
    if (pipe(ends) != 0) {
        std::perror("pipe");
        std::exit(2);
    }
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) {
        std::perror("fork");
        std::exit(2);
    }
    if (pid == 0) {
        close(ends[0]);
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        alarm(kCaseTimeoutSeconds);
        body();
        std::exit(failures() != 0 ? 1 : 0); // exit, not _exit: exit-time checks of the simulator must run
    }
    close(ends[1]);
    Ending ending;
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(ends[0], buffer, sizeof buffer)) > 0) {
        ending.output.append(buffer, static_cast<size_t>(n));
    }
    close(ends[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    ending.signal      = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    ending.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ending;
}

inline void expect_death(const char * file, int line, const char * needle,
                         const std::function<void()> & body) {
    const Ending ending = run_child(body);
    const bool named    = ending.output.find(needle) != std::string::npos;
    if (ending.signal != SIGABRT || !named) {
        report(file, line,
               "expected abort() and a message with '" + std::string(needle) + "', got signal " +
                   std::to_string(ending.signal) + ", exit " + std::to_string(ending.exit_status) +
                   ", stderr:\n" + ending.output);
    }
}

inline bool run_case(const Case & test, bool in_child) {
    if (!in_child) {
        const int before = failures();
        test.body();
        return failures() == before;
    }
    const Ending ending = run_child(test.body);
    const bool passed   = ending.signal == 0 && ending.exit_status == 0;
    std::fprintf(stderr, "%s %s\n", passed ? "ok  " : "FAIL", test.name);
    if (!passed) {
        std::fprintf(stderr, "  signal %d, exit %d\n%s\n", ending.signal, ending.exit_status,
                     ending.output.c_str());
    }
    return passed;
}

inline int main(int argc, char ** argv) {
    bool in_child = true;
    std::vector<std::string> wanted;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--no-fork") == 0) {
            in_child = false;
        } else if (std::strcmp(argv[i], "--list") == 0) {
            for (const Case & test : cases()) {
                std::puts(test.name);
            }
            return 0;
        } else {
            wanted.emplace_back(argv[i]);
        }
    }
    int n_run = 0, n_failed = 0;
    for (const Case & test : cases()) {
        bool chosen = wanted.empty();
        for (const std::string & name : wanted) {
            chosen = chosen || name == test.name;
        }
        if (chosen) {
            ++n_run;
            n_failed += run_case(test, in_child) ? 0 : 1;
        }
    }
    std::fprintf(stderr, "%d of %d cases passed\n", n_run - n_failed, n_run);
    // A run that found nothing to do is not a success: a typo in a name must show.
    return n_failed == 0 && n_run > 0 ? 0 : 1;
}

} // namespace check

#define TEST_CASE(name)                                                                                      \
    static void test_##name();                                                                               \
    static const check::Registrar registrar_##name{#name, test_##name};                                      \
    static void test_##name()

#define TEST_MAIN()                                                                                          \
    int main(int argc, char ** argv) {                                                                       \
        return check::main(argc, argv);                                                                      \
    }

// Notes a failure and goes on.
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            check::report(__FILE__, __LINE__, #condition);                                                   \
        }                                                                                                    \
    } while (false)

#define CHECK_EQ(got, want)                                                                                  \
    do {                                                                                                     \
        const auto & check_got  = (got);                                                                     \
        const auto & check_want = (want);                                                                    \
        if (!(check_got == check_want)) {                                                                    \
            check::report(__FILE__, __LINE__,                                                                \
                          std::string(#got " is ") + check::show(check_got) + ", want " +                    \
                              check::show(check_want));                                                      \
        }                                                                                                    \
    } while (false)

#define CHECK_NEAR(got, want, tolerance)                                                                     \
    do {                                                                                                     \
        const double check_got  = (got);                                                                     \
        const double check_want = (want);                                                                    \
        if (!(std::fabs(check_got - check_want) <= (tolerance))) {                                           \
            check::report(__FILE__, __LINE__,                                                                \
                          std::string(#got " is ") + check::show(check_got) + ", want " +                    \
                              check::show(check_want) + " +- " + check::show(tolerance));                    \
        }                                                                                                    \
    } while (false)

// Ends the case: what follows would crash on a failed condition.
#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            check::report(__FILE__, __LINE__, #condition);                                                   \
            std::exit(1);                                                                                    \
        }                                                                                                    \
    } while (false)

#define EXPECT_DEATH(needle, ...) check::expect_death(__FILE__, __LINE__, needle, [&]() { __VA_ARGS__; })
