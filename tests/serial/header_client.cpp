// The header on a PC: ask and stream, ask whole, cancel, search; prints what it got, one line each.
#include "appliance_client.h"

#include <fcntl.h>
#include <string>
#include <termios.h>
#include <time.h>
#include <unistd.h>

struct FilePort {
    int fd;
    int read() {
        unsigned char byte;
        return ::read(fd, &byte, 1) == 1 ? byte : -1;
    }
    size_t write(const uint8_t *data, size_t n) { return static_cast<size_t>(::write(fd, data, n)); }
};

using Box = appliance::Client<FilePort, 16384>;

static bool wait_for(Box &box, long id, const char *last, std::string &said, bool cancel = false) {
    const time_t end = time(nullptr) + 60;
    char text[4096];
    while (time(nullptr) < end) {
        if (!box.poll()) {
            usleep(1000);
            continue;
        }
        if (box.id() != id) {
            continue;
        }
        if (box.is_type("delta") && box.text("text", text, sizeof text)) {
            said += text;
            if (cancel) {
                box.cancel(id);
                cancel = false;
            }
        }
        if (box.is_type("error") && box.text("code", text, sizeof text)) {
            said = text;
            return false;
        }
        if (box.is_type(last)) {
            return true;
        }
    }
    return false;
}

int main(int, char **argv) {
    FilePort port{ open(argv[1], O_RDWR | O_NOCTTY | O_NONBLOCK) };
    termios raw;
    tcgetattr(port.fd, &raw);
    cfmakeraw(&raw);
    tcsetattr(port.fd, TCSANOW, &raw);
    Box box(port);
    std::string said;
    char text[256];
    const char *question = argv[2];
    if (!box.hello(9) || !wait_for(box, 9, "hello", said)) { return 9; }
    if (!box.ask(1, question) || !wait_for(box, 1, "answer", said)) { return 1; }
    printf("stream %s\n", said.c_str());
    if (!box.ask(2, question, false) || !wait_for(box, 2, "answer", said)) { return 2; }
    if (!box.text("answer", text, sizeof text)) { return 3; }
    printf("whole %s\n", text);
    said.clear();
    if (!box.ask(3, question) || !wait_for(box, 3, "cancelled", said, true)) { return 4; }
    printf("cancelled %s\n", said.empty() ? "nothing" : "something");
    if (!box.search(5, question) || !wait_for(box, 5, "hits", said)) { return 5; }
    if (!box.text("path", text, sizeof text)) { return 6; }
    printf("search %s\n", text);
    printf("lost %lu\n", box.n_lost);
    return 0;
}
