// WardFUSE
