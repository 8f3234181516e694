// Client for the appliance's serial machine mode, protocol version 1 (docs/serial-protocol.md).
//
// One header, C++11, no allocation, no exceptions: for an Arduino, an ESP32 or a PC. Give it an object
// with `int read()` (the next byte, -1 for none) and `size_t write(const uint8_t *, size_t)`; an
// Arduino `Stream` has both.
//
//     appliance::Client<HardwareSerial, 2048> box(Serial1);
//     box.ask(1, "How long is the warranty?");
//     void loop() {
//         if (box.poll()) {                          // a whole frame is here
//             char text[512];
//             if (box.is_type("delta") && box.text("text", text, sizeof text)) { Serial.print(text); }
//         }
//     }
//
// A frame longer than the buffer is skipped and counted in `n_lost`. Lines that do not begin with a
// brace are a person's and pass by unseen.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

namespace appliance {

template <class Port, size_t Size = 2048> class Client {
  public:
    explicit Client(Port &port) : port_(port) {}

    unsigned long n_lost = 0;

    bool hello(long id, const char *pin = nullptr) {
        begin(id, "hello");
        if (pin != nullptr) {
            field("pin", pin);
        }
        return end();
    }

    bool status(long id) { return begin(id, "status") && end(); }

    bool ask(long id, const char *question, bool stream = true, const char *collection = nullptr) {
        begin(id, "ask");
        field("q", question);
        put(stream ? ",\"stream\":true" : ",\"stream\":false");
        if (collection != nullptr) {
            field("collection", collection);
        }
        return end();
    }

    bool search(long id, const char *query, int k = 3) {
        begin(id, "search");
        field("q", query);
        char number[24];
        snprintf(number, sizeof number, ",\"k\":%d", k);
        put(number);
        return end();
    }

    // Ends the running request `id`; its last frame is then of type "cancelled".
    bool cancel(long id) { return begin(id, "cancel") && end(); }

    // Reads what has arrived; true once per whole frame, which stays until the next call.
    bool poll() {
        for (int byte = port_.read(); byte >= 0; byte = port_.read()) {
            const bool is_end = byte == '\n' || byte == '\r';
            if (in_frame_ && is_end) {
                in_frame_ = false;
                at_start_ = true;
                line_[n_] = '\0';
                return true;
            }
            if (in_frame_ && n_ + 1 < Size) {
                line_[n_++] = static_cast<char>(byte);
            } else if (in_frame_) {
                in_frame_ = false;
                n_lost++;
            } else if (at_start_ && byte == '{') {
                line_[0]  = '{';
                n_        = 1;
                in_frame_ = true;
            }
            at_start_ = is_end;
        }
        return false;
    }

    const char *frame() const { return line_; }

    long id() const {
        const char *at = value("id");
        if (at != nullptr && *at == '"') {
            at++;
        }
        long found = 0;
        bool is_number = false;
        for (; at != nullptr && *at >= '0' && *at <= '9'; at++) {
            found = found * 10 + (*at - '0');
            is_number = true;
        }
        return is_number ? found : -1;
    }

    bool is_type(const char *name) const {
        const char *at = value("type");
        const size_t n = strlen(name);
        return at != nullptr && *at == '"' && strncmp(at + 1, name, n) == 0 && at[n + 1] == '"';
    }

    // Copies a text of the frame, unescaped, as UTF-8; false when it is absent or does not fit.
    bool text(const char *key, char *out, size_t size) const {
        const char *at = value(key);
        if (at == nullptr || *at++ != '"') {
            return false;
        }
        size_t n = 0;
        while (*at != '\0' && *at != '"') {
            uint32_t code = static_cast<unsigned char>(*at++);
            if (code == '\\') {
                code = escaped(at);
            } else if (code >= 0x80) {
                if (n + 1 >= size) {
                    return false;
                }
                out[n++] = static_cast<char>(code);
                continue;
            }
            if (n + 5 > size) {
                return false;
            }
            n += utf8(code, out + n);
        }
        out[n] = '\0';
        return *at == '"';
    }

    // Finds `"key":` outside of texts, at any depth; the first one wins.
    const char *value(const char *key) const {
        const size_t n = strlen(key);
        for (const char *at = line_; *at != '\0';) {
            if (*at != '"') {
                at++;
                continue;
            }
            const char *start = ++at;
            while (*at != '\0' && *at != '"') {
                at += (*at == '\\' && at[1] != '\0') ? 2 : 1;
            }
            if (*at == '\0') {
                return nullptr;
            }
            const bool is_key = at[1] == ':';
            if (is_key && static_cast<size_t>(at - start) == n && strncmp(start, key, n) == 0) {
                return at + 2;
            }
            at++;
        }
        return nullptr;
    }

  private:
    Port & port_;
    char   line_[Size] = { 0 };
    size_t n_          = 0;
    bool   in_frame_   = false;
    bool   at_start_   = true;
    bool   is_sent_    = true;

    bool begin(long id, const char *op) {
        is_sent_ = true;
        char head[64];
        snprintf(head, sizeof head, "{\"id\":%ld,\"op\":\"%s\"", id, op);
        put(head);
        return is_sent_;
    }

    bool end() {
        put("}\n");
        return is_sent_;
    }

    void field(const char *name, const char *text) {
        put(",\"");
        put(name);
        put("\":\"");
        for (const char *at = text; *at != '\0'; at++) {
            char out[8] = { *at, '\0' };
            if (*at == '"' || *at == '\\') {
                snprintf(out, sizeof out, "\\%c", *at);
            } else if (static_cast<unsigned char>(*at) < 0x20) {
                snprintf(out, sizeof out, "\\u%04x", static_cast<unsigned>(*at));
            }
            put(out);
        }
        put("\"");
    }

    void put(const char *text) {
        const size_t n = strlen(text);
        is_sent_ = port_.write(reinterpret_cast<const uint8_t *>(text), n) == n && is_sent_;
    }

    static uint32_t hex4(const char *&at) {
        uint32_t code = 0;
        for (int i = 0; i < 4 && *at != '\0' && *at != '"'; i++, at++) {
            const char c = *at;
            code = code * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        }
        return code;
    }

    static uint32_t escaped(const char *&at) {
        const char c = *at;
        if (c == '\0') {
            return '?';
        }
        at++;
        switch (c) {
            case 'n': return '\n';
            case 't': return '\t';
            case 'r': return '\r';
            case 'b': return '\b';
            case 'f': return '\f';
            case 'u': break;
            default:  return static_cast<unsigned char>(c);
        }
        uint32_t code = hex4(at);
        if (code >= 0xD800 && code < 0xDC00 && at[0] == '\\' && at[1] == 'u') {
            at += 2;
            code = 0x10000 + ((code - 0xD800) << 10) + (hex4(at) - 0xDC00);
        }
        return code;
    }

    static size_t utf8(uint32_t code, char *out) {
        if (code < 0x80) {
            out[0] = static_cast<char>(code);
            return 1;
        }
        if (code < 0x800) {
            out[0] = static_cast<char>(0xC0 | (code >> 6));
            out[1] = static_cast<char>(0x80 | (code & 0x3F));
            return 2;
        }
        if (code < 0x10000) {
            out[0] = static_cast<char>(0xE0 | (code >> 12));
            out[1] = static_cast<char>(0x80 | ((code >> 6) & 0x3F));
            out[2] = static_cast<char>(0x80 | (code & 0x3F));
            return 3;
        }
        out[0] = static_cast<char>(0xF0 | (code >> 18));
        out[1] = static_cast<char>(0x80 | ((code >> 12) & 0x3F));
        out[2] = static_cast<char>(0x80 | ((code >> 6) & 0x3F));
        out[3] = static_cast<char>(0x80 | (code & 0x3F));
        return 4;
    }
};

}  // namespace appliance
