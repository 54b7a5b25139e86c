/* A program that starts at boot and keeps one setting, in a file of the default class C. The
 * file can be read from the first unlock on, and not before.
 *
 *     settings FILE            prints the setting, "none" where there is no file
 *     settings FILE VALUE      sets it
 *
 * Exit codes: 0 done, 2 the file can't be read yet (EPERM), 1 any other error. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *what) {
    int locked = errno == EPERM;
    fprintf(stderr, "settings: %s: %s\n", what, locked ? "not before the first unlock" : strerror(errno));
    return locked ? 2 : 1;
}

int main(int count, char **words) {
    char value[256] = "none";
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: settings FILE [VALUE]\n");
        return 1;
    }
    if (count == 3) {
        FILE *file = fopen(words[1], "w");
        if (!file) return failed(words[1]);
        fprintf(file, "%s\n", words[2]);
        return fclose(file) == 0 ? 0 : failed(words[1]);
    }
    FILE *file = fopen(words[1], "r");
    if (!file && errno != ENOENT) {
#ifdef CARELESS
        /* "It can't be read, so it is damaged: begin anew." The file was only locked, and now it
         * is gone. */
        unlink(words[1]);
#else
        return failed(words[1]);
#endif
    }
    if (file && !fgets(value, sizeof value, file)) value[0] = 0;
    if (file) fclose(file);
    printf("%s\n", strtok(value, "\n") ? value : "");
    return 0;
}
