import ArgumentParser

struct ContainerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "container",
        abstract: "Make, list, remove and use the containers of apps.",
        discussion: """
            A container is a directory of an app's own: Documents, Library, tmp. Its class comes from \
            the app's entitlements when it is made, and the app's files inherit it. An app's extension \
            has a container of its own; group containers are shared by the apps that name the group, \
            and have the volume's default class. What a program sets explicitly wins over all of this.

            Containers lie in the volume's directory Containers: Data/Application/ID, \
            Data/PluginKitPlugin/ID (extensions), Shared/AppGroup/ID.

            Examples:
              ward container create ~/papers org.example.diary --entitlements Diary.entitlements
              ward container list ~/papers
              ward container run ~/papers org.example.diary -- diary
            """,
        subcommands: [
            ContainerCreateCommand.self, ContainerListCommand.self, ContainerShowCommand.self,
            ContainerRemoveCommand.self, ContainerRunCommand.self,
        ])
}
