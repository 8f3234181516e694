// The runner judges everything else, so it is judged first: a failing check, a crash and a wrong death
// must each be seen as failures.
#include "check.h"

TEST_CASE(failed_check_fails_the_child) {
    const check::Ending ending = check::run_child([] { CHECK_EQ(1 + 1, 3); });

    CHECK_EQ(ending.exit_status, 1);
    CHECK(ending.output.find("1 + 1 is 2, want 3") != std::string::npos);
}

TEST_CASE(passed_check_passes_the_child) {
    const check::Ending ending = check::run_child([] { CHECK_NEAR(0.1 + 0.2, 0.3, 1e-12); });

    CHECK_EQ(ending.exit_status, 0);
}

TEST_CASE(death_with_its_text_is_expected) {
    EXPECT_DEATH("by name", {
        std::fputs("died by name\n", stderr);
        std::abort();
    });
}

TEST_CASE(death_with_another_text_is_a_failure) {
    const check::Ending ending = check::run_child([] { EXPECT_DEATH("by name", std::abort()); });

    CHECK_EQ(ending.exit_status, 1);
}

TEST_CASE(survival_is_a_failure_where_death_is_expected) {
    const check::Ending ending =
        check::run_child([] { EXPECT_DEATH("by name", std::fputs("by name", stderr)); });

    CHECK_EQ(ending.exit_status, 1);
}

TEST_MAIN()
