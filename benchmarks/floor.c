/* Floor: the CPU seconds that the system calls of a broker take for a gigabyte, with nothing around them.

   ./floor send BYTES REGION         sends BYTES over loopback out of a buffer of REGION bytes: a consumer's answers
   ./floor receive BYTES REGION FILE receives BYTES over loopback and writes them to FILE: a producer's requests

   The other end is a child, whose CPU is not counted. Prints the CPU seconds of this process, user and system. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL_BYTES 1000000L

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static char *filled(long size) {
    char *buffer = malloc((size_t)size);
    if (buffer == NULL) exit(3);
    memset(buffer, 1, (size_t)size);
    return buffer;
}

static void send_all(int connection, long bytes, long region) {
    char *buffer = filled(region);
    for (long sent = 0; sent < bytes;) {
        long at = sent % region, size = region - at < CALL_BYTES ? region - at : CALL_BYTES;
        ssize_t count = send(connection, buffer + at, (size_t)(size < bytes - sent ? size : bytes - sent), 0);
        if (count <= 0) exit(4);
        sent += count;
    }
    free(buffer);
}

/* Receives into a region, a call's bytes at a time, and writes each full piece to the file; -1: nowhere. */
static void receive_all(int connection, long region, int file) {
    char *buffer = filled(region);
    long at = 0, piece = 0;
    for (ssize_t count;; at += count, piece += count) {
        if (piece == CALL_BYTES || at == region) {
            if (file >= 0 && write(file, buffer + at - piece, (size_t)piece) != piece) exit(5);
            piece = 0;
            if (at == region) at = 0;
        }
        long room = CALL_BYTES - piece < region - at ? CALL_BYTES - piece : region - at;
        count = recv(connection, buffer + at, (size_t)room, 0);
        if (count < 0) exit(6);
        if (count == 0) break;
    }
    if (file >= 0 && piece && write(file, buffer + at - piece, (size_t)piece) != piece) exit(5);
    free(buffer);
}

int main(int count, char **words) {
    int receives = count == 5 && strcmp(words[1], "receive") == 0;
    if (!receives && !(count == 4 && strcmp(words[1], "send") == 0)) return 2;
    long bytes = atol(words[2]), region = atol(words[3]);
    if (bytes <= 0 || region <= 0) return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1)) return 7;
    getsockname(listener, (struct sockaddr *)&address, &size);
    if (fork() == 0) {
        int connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connection, (struct sockaddr *)&address, size)) _exit(8);
        if (receives) send_all(connection, bytes, CALL_BYTES);
        else receive_all(connection, 50 * CALL_BYTES, -1);
        _exit(0);
    }
    int connection = accept(listener, NULL, NULL);
    int file = receives ? open(words[4], O_WRONLY | O_CREAT | O_EXCL, 0600) : -1;
    if (connection < 0 || (receives && file < 0)) return 9;
    double before_s = cpu_s();
    if (receives) receive_all(connection, region, file);
    else send_all(connection, bytes, region);
    printf("%.6f\n", cpu_s() - before_s);
    close(connection);
    wait(NULL);
    return 0;
}
