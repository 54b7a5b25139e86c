// WardTrustedHosts: which hosts are trusted and for how long, and the keys that one gets.
//
// The slots of hosts lie in WardKeys, because a change of the effaceable key seals them anew. The
// rules are here, as extensions of `KeybagStore`. Read docs/trusted-hosts.md first.
