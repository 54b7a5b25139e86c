/* The kernel's FUSE protocol, from include/uapi/linux/fuse.h. */
#ifndef WARD_FUSE_H
#define WARD_FUSE_H

#include <stdint.h>

#endif
