// Containers: the directories of apps, their extensions and the groups they share, below
// `Containers/` of a mounted volume. A container is a directory with a class; `ContainerRecord` is
// what makes it one, `ContainerLayout` says where it lies, `VolumeContainers` makes, lists and
// removes them through the mount, as any program could. Nothing here holds a key, and nothing needs
// one: it works in every lock state. Classes are Apple's strings, as the attribute
// `user.ward.class` has them.
