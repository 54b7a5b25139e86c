// Containers: the directories of apps, their extensions and the groups that they share, below
// `Containers/` of a mounted volume. A container is a directory with a class and a record, the type
// `ContainerRecord`; the type `ContainerLayout` says where it lies. The type `VolumeContainers`
// makes, lists and removes containers through the mount, as any program could. This code holds no
// keys and needs none: it works in every lock state. Classes are Apple's strings, as in the
// attribute `user.ward.class`.
